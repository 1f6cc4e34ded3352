// Guarded work in Go: one unit at a time, only while this pod leads. Standard library only.
//
// It polls for its deadlines and holds a stream open for as long as it lives: should it crash, the
// sidecar sees the stream close and lets another lead at once.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type grant struct {
	epoch    int64
	deadline time.Time
}

// ask returns a grant of at most 2 s, or nil. No answer is no grant.
func ask(url string) *grant {
	client := http.Client{Timeout: 2 * time.Second}
	asked := time.Now() // carries a monotonic reading, by which deadlines are compared
	answer, err := client.Get(url + "/leader?max_valid=2s")
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	var said struct {
		Leader     bool  `json:"leader"`
		Epoch      int64 `json:"epoch"`
		WaitedMs   int64 `json:"waited_ms"`
		ValidForMs int64 `json:"valid_for_ms"`
	}
	if json.NewDecoder(answer.Body).Decode(&said) != nil || !said.Leader {
		return nil
	}
	granted := time.Duration(said.WaitedMs+said.ValidForMs) * time.Millisecond
	return &grant{said.Epoch, asked.Add(granted)}
}

// hold keeps the stream open until the context ends: the promise that work has stopped by then.
func hold(ctx context.Context, url string) {
	for ctx.Err() == nil {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/leader/events?hold=true", nil)
		if answer, err := http.DefaultClient.Do(request); err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// work is one unit: much shorter than a grant, and with its epoch on every write.
func work(g *grant) {
	if time.Now().Before(g.deadline) {
		fmt.Printf("work epoch=%d\n", g.epoch)
		time.Sleep(200 * time.Millisecond)
	}
}

func main() {
	url := os.Getenv("TENURE_URL")
	if url == "" {
		url = "http://localhost:4040"
	}
	told, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	// Not the context of the signals: the stream closes with the process, after the last unit.
	go hold(context.Background(), url)

	working := false
	for told.Err() == nil {
		if g := ask(url); g != nil {
			working = true
			work(g)
			continue
		}
		if working {
			fmt.Println("stop")
		}
		working = false
		time.Sleep(200 * time.Millisecond)
	}
}
