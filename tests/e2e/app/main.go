// The guarded app of the tests with real pods, and the small tools that its image needs. It logs JSON lines whose times
// are milliseconds of the machine's boottime clock, which all pods of a machine share.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

func main() {
	command, args := "pause", []string{}
	if len(os.Args) > 1 {
		command, args = os.Args[1], os.Args[2:]
	}
	switch command {
	case "pause":
		pause()
	case "run":
		os.Exit(run(args))
	case "work":
		os.Exit(work(args))
	case "http":
		request(args)
	case "kill":
		kill(args[0])
	case "streams":
		streams(args)
	default:
		fmt.Fprintln(os.Stderr, "unknown command", command)
		os.Exit(2)
	}
}

// pause is the sandbox's process: it reaps orphans until it is told to go.
func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// run starts `work` as a child, so that it can be killed with SIGKILL (the first process of a container cannot), and ends
// as it does.
func run(args []string) int {
	child := exec.Command("/proc/self/exe", append([]string{"work"}, args...)...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		for s := range signals {
			_ = child.Process.Signal(s)
		}
	}()
	if err := child.Wait(); err != nil {
		say("died", "error", err.Error())
		return 1
	}
	return 0
}

type answer struct {
	Leader     bool   `json:"leader"`
	State      string `json:"state"`
	Reason     string `json:"reason"`
	Epoch      *int64 `json:"epoch"`
	ValidFor   int64  `json:"valid_for_ms"`
	Waited     int64  `json:"waited_ms"`
	ValidUntil *int64 `json:"valid_until_boottime_ms"`
}

// app is what the guarded work knows: until when it may go on, and under which epoch.
type app struct {
	leads bool
	epoch int64
	until int64 // boottime ms
}

func work(args []string) int {
	flags := flag.NewFlagSet("work", flag.ExitOnError)
	mode := flags.String("mode", "hold", "hold: an open stream; poll: GET /leader; idle: ask nothing")
	every := flags.Duration("every", 500*time.Millisecond, "between two polls")
	maxValid := flags.String("max-valid", "", "asked of each poll")
	drain := flags.Duration("drain", 0, "how long the work needs to stop after SIGTERM")
	ignore := flags.Bool("ignore-term", false, "go on after SIGTERM until killed")
	release := flags.Bool("release", false, "POST /release when the work has stopped")
	crash := flags.Duration("crash-after", 0, "exit 1 after leading this long")
	_ = flags.Parse(args)

	say("start", "token", strconv.FormatBool(exists("/var/run/secrets/kubernetes.io/serviceaccount/token")),
		"writable", strconv.FormatBool(os.WriteFile("/written", nil, 0o600) == nil))
	terms := make(chan os.Signal, 8)
	signal.Notify(terms, syscall.SIGTERM)
	answers := make(chan answer, 64)
	switch *mode {
	case "hold":
		go hold(answers)
	case "poll":
		go poll(answers, *every, *maxValid)
	}
	var a app
	var stop, crashAt <-chan time.Time
	for {
		var lapse <-chan time.Time
		if a.leads {
			lapse = time.After(time.Duration(max(a.until-now(), 0)) * time.Millisecond)
		}
		select {
		case next := <-answers:
			led := a.leads
			a.take(next)
			if a.leads && !led && *crash > 0 {
				crashAt = time.After(*crash)
			}
		case <-lapse:
			a.end("lapsed")
		case <-crashAt:
			say("crash")
			return 1
		case <-terms:
			say("term")
			if !*ignore && stop == nil {
				stop = time.After(*drain)
			}
		case <-stop:
			a.end("stopped")
			say("stopped", "until", strconv.FormatInt(a.until, 10))
			if *release {
				status, body := call(http.MethodPost, "/release", fmt.Sprintf(`{"epoch": %d, "final": true, "wait": "5s"}`, a.epoch))
				say("released", "status", strconv.Itoa(status), "body", body)
			}
			return 0
		}
	}
}

// take believes an answer; each change of what may be done is one line of the log.
func (a *app) take(next answer) {
	if next.Leader && next.ValidUntil != nil && *next.ValidUntil > now() {
		if !a.leads || a.epoch != *next.Epoch {
			say("lead", "epoch", strconv.FormatInt(*next.Epoch, 10), "until", strconv.FormatInt(*next.ValidUntil, 10))
		}
		a.leads, a.epoch, a.until = true, *next.Epoch, *next.ValidUntil
		return
	}
	// Draining: what has begun may end, by then. The tests count that as work.
	if a.leads && next.State == "draining" && next.ValidUntil != nil && *next.ValidUntil > now() {
		say("draining", "until", strconv.FormatInt(*next.ValidUntil, 10))
		a.until = *next.ValidUntil
		return
	}
	a.end(next.State)
}

func (a *app) end(why string) {
	if a.leads {
		say("end", "why", why, "epoch", strconv.FormatInt(a.epoch, 10))
	}
	a.leads = false
}

// hold keeps the stream open for the life of the process and reads its events.
func hold(answers chan<- answer) {
	for {
		response, err := client().Get(base() + "/leader/events?hold=true")
		if err == nil {
			event := ""
			for line := range lines(response.Body) {
				if name, ok := strings.CutPrefix(line, "event:"); ok {
					event = strings.TrimSpace(name)
				}
				data, ok := strings.CutPrefix(line, "data:")
				if !ok {
					continue
				}
				var next answer
				_ = json.Unmarshal([]byte(data), &next)
				if event == "renewed" { // carries validity and epoch only
					next.Leader = next.ValidFor > 0
				}
				answers <- next
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func lines(body io.Reader) func(func(string) bool) {
	return func(yield func(string) bool) {
		buffer, rest := make([]byte, 4096), ""
		for {
			n, err := body.Read(buffer)
			rest += string(buffer[:n])
			for {
				line, after, found := strings.Cut(rest, "\n")
				if !found {
					break
				}
				rest = after
				if !yield(strings.TrimRight(line, "\r")) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// poll asks; the deadline counts from before the question.
func poll(answers chan<- answer, every time.Duration, maxValid string) {
	path := "/leader"
	if maxValid != "" {
		path += "?max_valid=" + maxValid
	}
	for {
		before := now()
		status, body := call(http.MethodGet, path, "")
		var next answer
		if status == http.StatusOK && json.Unmarshal([]byte(body), &next) == nil {
			until := before + next.Waited + next.ValidFor
			if next.ValidFor > 0 {
				next.ValidUntil = &until
			}
			answers <- next
		}
		time.Sleep(every)
	}
}

// request prints the status and the body of one call to the sidecar; a full URL goes where it says.
func request(args []string) {
	body := ""
	if len(args) > 2 {
		body = args[2]
	}
	status, text := call(args[0], args[1], body)
	fmt.Printf("%d %s\n", status, strings.TrimSpace(text))
}

func call(method, path, body string) (int, string) {
	url := path
	if strings.HasPrefix(path, "/") {
		url = base() + path
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	response, err := client().Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func base() string {
	if url := os.Getenv("TENURE_URL"); url != "" && !strings.HasPrefix(url, "unix:") {
		return url
	}
	return "http://localhost:4040"
}

func client() *http.Client {
	transport := &http.Transport{DisableKeepAlives: true}
	if path, ok := strings.CutPrefix(os.Getenv("TENURE_URL"), "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	return &http.Client{Transport: transport}
}

// streams opens N event streams and keeps them, unread: `streams 100`, `streams 1 hold`.
func streams(args []string) {
	n, _ := strconv.Atoi(args[0])
	query := ""
	if len(args) > 1 {
		query = "?" + args[1] + "=true"
	}
	var open []net.Conn
	for range n {
		connection, err := net.Dial("tcp", "127.0.0.1:4040")
		if err != nil {
			fmt.Println("refused after", len(open), err)
			break
		}
		_ = connection.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(connection, "GET /leader/events%s HTTP/1.1\r\nHost: localhost\r\n\r\n", query)
		open = append(open, connection)
	}
	fmt.Println("open", len(open))
	for {
		time.Sleep(time.Hour)
	}
}

// kill sends SIGKILL to every process whose command line contains the text.
func kill(text string) {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, entry := range entries {
		line, _ := os.ReadFile(entry)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		command := strings.ReplaceAll(string(line), "\x00", " ")
		if pid != os.Getpid() && strings.Contains(command, text) {
			fmt.Println("killing", pid, command, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func say(what string, pairs ...string) {
	line := map[string]any{"ms": now(), "what": what}
	for i := 0; i < len(pairs); i += 2 {
		if number, err := strconv.ParseInt(pairs[i+1], 10, 64); err == nil {
			line[pairs[i]] = number
		} else {
			line[pairs[i]] = pairs[i+1]
		}
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

// now is CLOCK_BOOTTIME in milliseconds.
func now() int64 {
	const clockBoottime = 7
	var t syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Sec*1000 + t.Nsec/1_000_000
}
