package daemon

import (
	"fmt"
	"path/filepath"

	"rouse/cmd/internal/config"
)

// definitionWritableByOthers says how somebody other than the user of this process could change one
// of the files that define an agent or a job, "" when nobody can (OSL-19).
func definitionWritableByOthers(file string, more config.Path) string {
	for _, path := range []string{file, string(more)} {
		if path == "" {
			continue
		}

		if actual, err := filepath.EvalSymlinks(path); err == nil {
			path = actual
		}
		if why := writableByOthers(path); why != "" {
			return fmt.Sprintf("%s %s", path, why)
		}
	}
	return ""
}
