package daemon

import (
	"fmt"
	"path/filepath"

	"rouse/internal/owner"
)

// definitionWritableByOthers says how somebody other than the user of this process could change one
// of the files that define an agent or a job, "" when nobody can (OSL-19).
func definitionWritableByOthers(files ...string) string {
	for _, path := range files {
		if path == "" {
			continue
		}

		if actual, err := filepath.EvalSymlinks(path); err == nil {
			path = actual
		}
		if why := owner.WritableByOthers(path); why != "" {
			return fmt.Sprintf("%s %s", path, why)
		}
	}
	return ""
}
