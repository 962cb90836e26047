package config

import (
	"errors"
	"path/filepath"
)

// DefaultHome is $ROUSE_HOME, or .rouse in the user's folder.
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

func UserHome(getenv func(string) string) (string, error) {
	// Not os.UserHomeDir: the environment is the one that the caller passes.
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir := getenv(name); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("neither $ROUSE_HOME nor $HOME is set; say where state lives with --home")
}

// AdoptedFile holds, in a home, the path of the configuration that it was first started with.
const AdoptedFile = "config-path"
