// A client-go elector as an ordinary Go program would embed it: the peer that the tests let compete
// with tenure for a Lease. It says what it does as JSON lines on its standard output, each stamped with
// CLOCK_BOOTTIME, the clock tenure's own history uses, so that both can be put on one time line.
//
// SIGTERM or SIGINT cancels the election; with --release-on-cancel the Lease is then given up.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// entry is one line of the history.
type entry struct {
	BoottimeNS int64  `json:"boottime_ns"`
	Event      string `json:"event"`
	Identity   string `json:"identity"`
	// Leader is the holder seen, on new_leader only.
	Leader string `json:"leader,omitempty"`
	// The rest is set on lines of writes (create, update).
	SentNS      int64  `json:"sent_ns,omitempty"`
	Holder      string `json:"holder,omitempty"`
	Transitions *int   `json:"transitions,omitempty"`
	Error       string `json:"error,omitempty"`
}

// history writes entries whole, from whichever goroutine.
type history struct {
	mu       sync.Mutex
	identity string
}

func (h *history) write(e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.BoottimeNS = boottime()
	e.Identity = h.identity
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func boottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// recordedLock tells of every write to the Lease: its send time, what it wrote, how it ended.
// A release is an update whose holder is empty.
type recordedLock struct {
	resourcelock.Interface
	history *history
}

func (l recordedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := boottime()
	err := l.Interface.Create(ctx, record)
	l.tell("create", sent, record, err)
	return err
}

func (l recordedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := boottime()
	err := l.Interface.Update(ctx, record)
	l.tell("update", sent, record, err)
	return err
}

func (l recordedLock) tell(event string, sent int64, record resourcelock.LeaderElectionRecord, err error) {
	e := entry{
		Event: event, SentNS: sent, Holder: record.HolderIdentity, Transitions: &record.LeaderTransitions,
	}
	if err != nil {
		e.Error = err.Error()
	}
	l.history.write(e)
}

type options struct {
	server, caFile, tokenFile, kubeconfig string
	namespace, lease, identity            string
	leaseDuration, renewDeadline, retry   time.Duration
	releaseOnCancel                       bool
}

func parse() options {
	var o options
	flag.StringVar(&o.server, "server", "", "URL of the API server")
	flag.StringVar(&o.caFile, "ca-file", "", "PEM file of the CA of the API server's certificate")
	flag.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token; read anew from time to time")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file, in place of the three above")
	flag.StringVar(&o.namespace, "namespace", "default", "namespace of the Lease")
	flag.StringVar(&o.lease, "lease", "", "name of the Lease")
	flag.StringVar(&o.identity, "identity", "", "holderIdentity of this process")
	flag.DurationVar(&o.leaseDuration, "lease-duration", 15*time.Second, "lease duration")
	flag.DurationVar(&o.renewDeadline, "renew-deadline", 10*time.Second, "renew deadline")
	flag.DurationVar(&o.retry, "retry-period", 2*time.Second, "retry period")
	flag.BoolVar(&o.releaseOnCancel, "release-on-cancel", false, "give the Lease up when told to stop")
	flag.Parse()
	return o
}

func (o options) restConfig() (*rest.Config, error) {
	config := &rest.Config{
		Host:            o.server,
		BearerTokenFile: o.tokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: o.caFile},
	}
	if o.kubeconfig != "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig); err != nil {
			return nil, err
		}
	}
	// As the Kubernetes components do: one silent request must not use up the whole renew deadline.
	config.Timeout = o.renewDeadline / 2
	return config, nil
}

func run(ctx context.Context, o options) error {
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	h := &history{identity: o.identity}
	lock := recordedLock{history: h, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: o.lease},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.identity},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   o.leaseDuration,
		RenewDeadline:   o.renewDeadline,
		RetryPeriod:     o.retry,
		ReleaseOnCancel: o.releaseOnCancel,
		Name:            o.lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { h.write(entry{Event: "started_leading"}) },
			OnStoppedLeading: func() { h.write(entry{Event: "stopped_leading"}) },
			OnNewLeader:      func(id string) { h.write(entry{Event: "new_leader", Leader: id}) },
		},
	})
	if err != nil {
		return err
	}
	h.write(entry{Event: "started"})
	elector.Run(ctx)
	return nil
}

func main() {
	o := parse()
	if o.lease == "" || o.identity == "" || (o.server == "" && o.kubeconfig == "") {
		fmt.Fprintln(os.Stderr, "needed: --lease, --identity, and --server or --kubeconfig")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
