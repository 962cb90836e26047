package daemon

import (
	"fmt"
	"path/filepath"

	"rouse/internal/owner"
)

// writables is what was found of files, each of which is looked at once: thousands of jobs stand in the same.
type writables map[string]string

// byOthers says how somebody other than the user of this process could change one of the files that define an agent or a job,
// "" when nobody can (OSL-19).
func (w writables) byOthers(files ...string) string {
	for _, path := range files {
		if path == "" {
			continue
		}

		why, known := w[path]
		if !known {
			why = definitionWritableByOthers(path)
			w[path] = why
		}
		if why != "" {
			return why
		}
	}
	return ""
}

func definitionWritableByOthers(path string) string {
	if actual, err := filepath.EvalSymlinks(path); err == nil {
		path = actual
	}
	if why := owner.WritableByOthers(path); why != "" {
		return fmt.Sprintf("%s %s", path, why)
	}
	return ""
}
