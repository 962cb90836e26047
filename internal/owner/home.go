package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckHome returns an error if another user can change rouse's home folder. Such a user could
// control rouse and read its data. A folder that does not exist is accepted.
func CheckHome(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("the home folder cannot be used: %w", err)
	case !Mine(info):
		return fmt.Errorf("the home folder %s %s; choose one of yours with --home, or run rouse as that user", dir, Whose(info))
	}

	at, why := dir, WritableByOthers(dir)
	if real, err := filepath.EvalSymlinks(dir); err == nil && why == "" {
		at, why = real, WritableByOthers(real)
	}
	if why == "" {
		return nil
	}

	mend := Chmod(at)
	if Foreign(info) != "" {
		mend = "rouse doctor --fix"
	}
	if mend != "" {
		mend = "take that right away with: " + mend + ", or "
	}
	return fmt.Errorf("the home folder %s %s, so that somebody else could decide what rouse does; %schoose another with --home", dir, why, mend)
}
