package plan

import "rouse/internal/ledger"

// BatchFile is a file of a batch in templates. A missing file keeps its place, because the keys of
// a playbook's calls contain positions in the batch.
type BatchFile struct {
	ledger.File
	gone bool
}

// Removed implements playbook.RemovableItem.
func (f BatchFile) Removed() bool { return f.gone }

// NewBatchFile returns a file of a batch. gone marks a file that is missing or has changed.
func NewBatchFile(f ledger.File, gone bool) BatchFile { return BatchFile{f, gone} }

// BatchOf returns the files of a batch. None of them is gone.
func BatchOf(files []ledger.File) []BatchFile {
	out := make([]BatchFile, len(files))
	for i, f := range files {
		out[i] = BatchFile{File: f}
	}
	return out
}

// Present returns the files that are not gone.
func Present(files []BatchFile) []ledger.File {
	var out []ledger.File
	for _, f := range files {
		if !f.gone {
			out = append(out, f.File)
		}
	}
	return out
}
