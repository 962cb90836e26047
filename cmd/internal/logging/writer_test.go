package logging

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rouse/cmd/internal/config"
)

// TestLogWithoutReader checks that logging continues while the reader is blocked. The reader then
// gets the buffered lines in order, and the number of dropped lines in the format of the log.
func TestLogWithoutReader(t *testing.T) {
	t.Parallel()
	const lines = 40_000 // of about 80 bytes each: more than the buffer size
	for format, number := range map[string]string{"json": `"number":%d}`, "text": "number=%d"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reader, pipe := io.Pipe() // the pipe blocks until it is read
				w := NewWriter(pipe)
				log := New(&config.Config{Log: config.Log{Format: format}, Timezone: "UTC"}, &Var{}, w)
				for i := range lines {
					log.Info("said", "number", i)
					if i == 0 {
						synctest.Wait() // the first line is being written, and later lines are buffered
					}
				}

				told := make(chan []string, 1)
				go func() {
					var all []string
					for s := bufio.NewScanner(reader); s.Scan(); {
						all = append(all, s.Text())
					}
					told <- all
				}()
				w.Close()
				_ = pipe.Close()
				all := <-told

				for i, line := range all[:len(all)-1] {
					if !strings.HasSuffix(line, fmt.Sprintf(number, i)) {
						t.Fatalf("line %d is %s", i, line)
					}
				}
				last := all[len(all)-1]
				if want := fmt.Sprintf("lost %d lines of the log, because the reader did not read", lines-len(all)+1); len(all) < 2 || !strings.Contains(last, want) {
					t.Errorf("%d lines came, and then %s", len(all), last)
				}
				if format == "json" && !json.Valid([]byte(last)) {
					t.Error("not JSON:", last)
				}
			})
		})
	}
}

// TestLogGoesOnAfterALoss checks that lines are written as usual after a loss.
func TestLogGoesOnAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, pipe := io.Pipe()
		w := NewWriter(pipe)
		lines := bufio.NewReaderSize(reader, 2*maxUnread)
		expect := func(want string) {
			t.Helper()
			if line, err := lines.ReadString('\n'); err != nil || line != want {
				t.Fatalf("%.100q instead of %.100q: %v", line, want, err)
			}
		}
		big := strings.Repeat("x", maxUnread-1) + "\n"

		fmt.Fprint(w, big)
		synctest.Wait() // the line is being written, and the buffer is empty
		fmt.Fprint(w, big)
		fmt.Fprintln(w, "no room for this")
		expect(big)
		expect(big)
		expect("rouse: " + lostText(1) + "\n")

		synctest.Wait()
		fmt.Fprintln(w, "here again")
		expect("here again\n")
		w.Close()
	})
}

// TestLogCloseIsBounded checks that a blocked reader does not keep a daemon from ending.
func TestLogCloseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, pipe := io.Pipe()
		w := NewWriter(pipe)
		fmt.Fprintln(w, "nobody reads this")
		begun := time.Now()
		w.Close()
		if took := time.Since(begun); took != closeFor {
			t.Error(took)
		}
		_ = reader.Close() // ends the goroutine
		<-w.over
	})
}
