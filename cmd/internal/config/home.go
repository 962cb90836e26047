package config

import (
	"errors"
	"path/filepath"
)

// DefaultHome returns $ROUSE_HOME, or .rouse in the user's home folder.
func DefaultHome(getenv func(string) string) (string, error) {
	if dir := getenv("ROUSE_HOME"); dir != "" {
		return filepath.Abs(dir)
	}

	home, err := UserHome(getenv)
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".rouse"), nil
}

// UserHome returns the user's home folder from the environment that the caller passes.
func UserHome(getenv func(string) string) (string, error) {
	// os.UserHomeDir would read the environment of the process.
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir := getenv(name); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("neither $ROUSE_HOME nor $HOME is set; say where state lives with --home")
}

// AdoptedFile is the file in a home that holds the path of the first configuration used with it.
const AdoptedFile = "config-path"
