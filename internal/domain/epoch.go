package domain

// Epoch is a stretch of a ledger's life in which run ids are not given twice. What is kept outside
// the ledger under the id of a run is kept under that of its epoch as well, so that run 3 of another
// ledger, or of one that was lost or put back to an older state, is never taken for this one's.
type Epoch struct {
	ID    string // 32 hexadecimal digits, random; the last epoch's is the ledger's own
	First int64  // the first run id that it may give
	Last  int64  // the last that it gave; 0 for the epoch that goes on
}

// Holds reports whether a run of the ledger belongs to the epoch.
func (e Epoch) Holds(run int64) bool { return run >= e.First && (e.Last == 0 || run <= e.Last) }
