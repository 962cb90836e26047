package watcher

import "sync"

const maxProbes = 32 // files retried per scan while moving fails

// failedMoves holds the files of a folder that could not be moved or deleted after their runs.
type failedMoves struct {
	hints *hints

	mu          sync.Mutex
	moveErrors  map[string]string // errors by file that could not be moved or deleted
	toRetry     map[string]bool   // files of moveErrors that no scan has retried yet
	moveFailure string            // error of the last move; "" if it succeeded
}

// problem returns a description of the failures for the folder's status, or "" if there are none.
func (m *failedMoves) problem() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.moveErrors) == 0 {
		return ""
	}
	return describeFirst(m.moveErrors, "could not be dealt with after its run") + "; it is tried again at each scan"
}

// noteAfterAction records whether a file could be moved, for the owner and for the next scan. It
// reports whether the error is new. If failure is nil, the move succeeded, and the other files are
// retried at once.
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

// nextRetries returns the known files that a scan has to retry. These are all files that could not
// be moved or, while moving still fails, a few of them.
func (m *failedMoves) nextRetries() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.moveFailure == "" {
		out := m.toRetry
		m.toRetry = map[string]bool{}
		return out
	}

	// With a full disk, a scan must not hash and try to move thousands of files in vain.
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

// retryAll makes the next scan retry all files that could not be moved.
func (m *failedMoves) retryAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := range m.moveErrors {
		m.toRetry[path] = true
	}
}

// forgetVanished drops the errors of files that a scan no longer found.
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
