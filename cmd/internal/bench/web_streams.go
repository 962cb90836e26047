package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
)

// watched has many streams open, and measures until an event is seen on all of them, and what they take.
func (b *webBench) watched(ctx context.Context) (_ []Figure, err error) {
	b.report("%d streams", b.streams)
	before, err := readProcess(b.pid)
	if err != nil {
		return nil, nil //nolint:nilerr // without /proc there is nothing to tell
	}

	// What is seen of each event: its id, once it has come.
	seen := make(chan string, b.streams)
	var open []io.Closer
	defer func() {
		for _, one := range open {
			err = errors.Join(err, one.Close())
		}
	}()
	for range b.streams {
		stream, err := b.open(ctx, "/v1/events?kind=run.queued", "text/event-stream")
		if err != nil {
			return nil, err
		}
		open = append(open, stream)
		go readIDs(stream, seen)
	}

	late, err := b.signals(ctx, seen)
	if err != nil {
		return nil, err
	}
	after, err := readProcess(b.pid)
	if err != nil {
		return nil, err
	}

	what, more := fmt.Sprintf("%d streams: ", b.streams), max(0, after.rss-before.rss)*1024*1024/1e6
	return []Figure{
		{what + "an event, from before its commit until all have it, p99", percentile(late, 99), 0, "ms", 0, "≤ 50 ms", percentile(late, 99) <= 50},
		{what + "more memory", more, 0, "MB", 0, "≤ 20 MB", more <= 20},
	}, nil
}

// stream is an answer that is still going on.
type stream struct {
	io.ReadCloser
	end context.CancelFunc
}

func (s stream) Close() error {
	s.end()
	return s.ReadCloser.Close()
}

// open asks for a stream.
func (b *webBench) open(ctx context.Context, path, accept string) (stream, error) {
	ctx, end := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil)
	if err != nil {
		end()
		return stream{}, err
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}

	answer, err := b.http.Do(request)
	if err != nil {
		end()
		return stream{}, err
	}
	if answer.StatusCode != http.StatusOK {
		end()
		return stream{}, errors.Join(fmt.Errorf("%s answers %s", path, answer.Status), answer.Body.Close())
	}
	return stream{answer.Body, end}, nil
}

// readIDs reports the id of each event of a stream.
func readIDs(r io.Reader, seen chan<- string) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var e api.Event
			if json.Unmarshal([]byte(data), &e) == nil {
				seen <- e.ID
			}
		}
	}
}

// signals has something happen again and again, and returns how long each took until all streams had it, in
// milliseconds. The clock starts before the commit is asked for, so that the figure is above what it stands for.
func (b *webBench) signals(ctx context.Context, seen <-chan string) (late []float64, err error) {
	client, err := api.Dial(ctx, daemon.SocketPath(b.home()))
	if err != nil {
		return nil, err
	}
	defer client.Close()

	var last api.Run
	for range b.asks {
		begin := time.Now()
		if err := client.Post(ctx, "/v1/runs", api.RunRequest{Job: homeJob(1)}, &last); err != nil {
			return nil, err
		}
		if err := b.await(ctx, seen, b.streams); err != nil {
			return nil, err
		}
		late = append(late, milliseconds(time.Since(begin)))
	}

	// What they started is not to be measured as what an idle daemon does.
	for _, err := range client.Lines(ctx, "/v1/events", url.Values{"run": {last.ID}, "follow": {"true"}}) {
		if err != nil {
			return nil, err
		}
	}
	return late, nil
}

// await waits until so many streams have had an event.
func (b *webBench) await(ctx context.Context, seen <-chan string, n int) error {
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for got := range n {
		select {
		case <-seen:
		case <-limit.C:
			return fmt.Errorf("of %d streams %d have had an event after 10 s", n, got)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
