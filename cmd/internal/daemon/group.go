package daemon

import (
	"fmt"
	"sync"
)

// group runs the parts and remembers the first that failed.
type group struct {
	mu       sync.Mutex
	done     map[string]chan struct{} // closed when the part of that name has returned
	firstErr error
	failure  chan struct{} // closed with firstErr
}

func (g *group) run(name string, f func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.done == nil {
		g.done, g.failure = map[string]chan struct{}{}, make(chan struct{})
	}

	ended := make(chan struct{})
	g.done[name] = ended
	go func() {
		defer close(ended)
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			// Only the first counts: when a part fails, others often fail because of it.
			if g.firstErr == nil {
				g.firstErr = fmt.Errorf("%s: %w", name, err)
				close(g.failure)
			}
		}
	}()
}

func (g *group) failed() <-chan struct{} { return g.failure }

func (g *group) wait(names ...string) {
	for _, n := range names {
		<-g.done[n]
	}
}

func (g *group) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.firstErr
}
