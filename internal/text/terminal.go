package text

import (
	"io"
	"os"
)

// IsTerminal says whether what is written to w is read by a person at a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}

	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
