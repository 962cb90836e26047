package domain

// Epoch is a range of run ids within which the ledger does not reuse an id. Data outside the ledger
// is stored by epoch and run id. So the data of run 3 is not used for run 3 of another ledger, or
// of an older state that was restored.
type Epoch struct {
	ID    string // 32 random hexadecimal digits; the id of the last epoch identifies the ledger
	First int64  // first run id
	Last  int64  // last run id; zero for the current epoch
}

// Holds reports whether a run of the ledger belongs to the epoch.
func (e Epoch) Holds(run int64) bool { return run >= e.First && (e.Last == 0 || run <= e.Last) }
