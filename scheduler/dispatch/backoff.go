package dispatch

import (
	"fmt"
	"hash/fnv"
	"time"
)

// backoff is the wait before the next try: doubled for each one, bounded, and spread by
// up to a quarter so that what failed together does not return together.
func backoff(p Policy, run int64, tries int) time.Duration {
	wait, most := p.Backoff, p.MaxBackoff
	if wait <= 0 {
		wait = 30 * time.Second
	}

	if most <= 0 {
		most = 15 * time.Minute
	}

	for range tries - 1 {
		if wait *= 2; wait >= most {
			break
		}
	}

	wait = min(wait, most)
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%d", run, tries)
	return wait - time.Duration(h.Sum64()%uint64(wait/4+1))
}
