package watcher

import "sync"

const maxProbes = 32 // files that one scan retries while moving fails

// failedMoves are the files of a folder that could not be dealt with after their runs.
type failedMoves struct {
	hints *hints

	mu          sync.Mutex
	moveErrors  map[string]string // files that could not be moved or deleted, and why
	toRetry     map[string]bool   // those of them that no scan has tried again yet
	moveFailure string            // why the last move failed, "" when it did not
}

// problem describes the failures for the status of the folder, "" when there are none.
func (m *failedMoves) problem() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.moveErrors) == 0 {
		return ""
	}
	return describeFirst(m.moveErrors, "could not be dealt with after its run") + "; it is tried again at each scan"
}

// noteAfterAction remembers why a file could not be moved, for its owner and for the next scan, and
// says whether that is news. A success (failure is nil) shows that the others are worth another try at
// once.
func (m *failedMoves) noteAfterAction(path string, failure error) (news bool) {
	why := ""
	if failure != nil {
		why = failure.Error()
	}

	m.mu.Lock()
	news = why != "" && why != m.moveFailure
	m.moveFailure = why
	if why != "" {
		m.moveErrors[path] = why
		m.toRetry[path] = true
	} else {
		delete(m.moveErrors, path)
		delete(m.toRetry, path)
	}

	again := why == "" && len(m.toRetry) > 0
	m.mu.Unlock()
	if again {
		m.hints.requestScan("files can be moved again")
	}
	return news
}

// nextRetries are known files that a scan has to look at again: all whose move has failed or,
// while moving fails, a few.
func (m *failedMoves) nextRetries() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.moveFailure == "" {
		out := m.toRetry
		m.toRetry = map[string]bool{}
		return out
	}

	// A full disk must not make each scan hash and move thousands of files in vain.
	out := map[string]bool{}
	for path := range m.toRetry {
		if len(out) == maxProbes {
			break
		}
		out[path] = true
		delete(m.toRetry, path)
	}

	return out
}

// retryAll has the next scan that can look into the folder look again at all files whose move has failed.
func (m *failedMoves) retryAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := range m.moveErrors {
		m.toRetry[path] = true
	}
}

// forgetVanished drops the move errors of files that a scan did not find any more.
func (m *failedMoves) forgetVanished(retried map[string]bool, walk *walk) {
	if len(retried) == 0 {
		return
	}

	there := make(map[string]bool, len(walk.files))
	for _, s := range walk.files {
		there[s.Path] = true
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	for path := range retried {
		if !there[path] {
			delete(m.moveErrors, path)
		}
	}
}
