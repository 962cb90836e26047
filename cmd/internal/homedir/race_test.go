package homedir

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHomeHasOneHolder checks that one of several concurrent callers gets a home, and that the
// others learn the holder. ROUSE_TEST_RACES sets the number of rounds.
func TestHomeHasOneHolder(t *testing.T) {
	t.Parallel()
	races, err := strconv.Atoi(os.Getenv("ROUSE_TEST_RACES"))
	if err != nil {
		races = 20
	}

	const rivals = 4
	dir := t.TempDir()
	for race := range races {
		var all, ready sync.WaitGroup
		ready.Add(rivals)
		closers, errs := make([]func() error, rivals), make([]error, rivals)
		for i := range rivals {
			all.Go(func() {
				ready.Done()
				ready.Wait()
				h, err := Open(dir, Holder{PID: 1000 + i, Daemon: true, StartedAt: time.Now()})
				if errs[i] = err; err == nil {
					closers[i] = h.Close
				}
			})
		}
		all.Wait()

		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("race %d: %d and %d both hold the home", race, winner, i)
			case err == nil:
				winner = i
			case !errors.As(err, new(*HeldError)):
				t.Fatalf("race %d: %v", race, err)
			}
		}
		if winner < 0 {
			t.Fatalf("race %d: nobody holds the home: %v", race, errors.Join(errs...))
		}

		if _, err := Open(dir, Holder{PID: 1}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d,", 1000+winner)) {
			t.Fatalf("race %d: %v does not say that %d holds it", race, err, 1000+winner)
		}
		if err := closers[winner](); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d races of %d for one home: one winner each", races, rivals)
}
