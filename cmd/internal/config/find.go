package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const fileName = "rouse.yaml"

// homeLine is where the home stands in a file that is not YAML.
var homeLine = regexp.MustCompile(`(?m)^home:.*$`)

// ErrNoFile says that there is no configuration where one is looked for.
var ErrNoFile = errors.New("no configuration was found")

// Find is the path of the configuration: the one that was named, ./rouse.yaml, or the one
// in the home. ErrNoFile when there is none. One that nobody named has to be the user's own: see CheckFound.
func Find(named string, getenv func(string) string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}

	candidates := []string{fileName}
	if home, err := DefaultHome(getenv); err == nil {
		candidates = append(candidates, filepath.Join(home, fileName))
	}

	for _, path := range candidates {
		if _, err := os.Stat(path); err == nil {
			if path, err = filepath.Abs(path); err == nil {
				err = CheckFound(path, getenv)
			}
			return path, err
		}
	}

	return "", fmt.Errorf("%w at %s; write one with: rouse init", ErrNoFile, strings.Join(candidates, " or "))
}

// DefaultHome is $ROUSE_HOME, or .rouse in the user's folder.
func DefaultHome(getenv func(string) string) (string, error) {
	if dir := getenv("ROUSE_HOME"); dir != "" {
		return filepath.Abs(dir)
	}

	home, err := userHome(getenv)
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".rouse"), nil
}

func userHome(getenv func(string) string) (string, error) {
	// Not os.UserHomeDir: the environment is the one that the caller passes.
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir := getenv(name); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("neither $ROUSE_HOME nor $HOME is set; say where state lives with --home")
}

// Home reads nothing but the home of a configuration, whatever else is wrong with it.
func Home(path string, getenv func(string) string) (string, error) {
	if dir := getenv("ROUSE_HOME"); dir != "" {
		return filepath.Abs(dir)
	}

	text, err := readMain(path)
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}

	d := newDecoder(getenv)
	root := d.parse(path, text)
	if root == nil {
		// Its owner looks for the daemon that goes on with the last good configuration.
		root = d.parse(path, homeLine.Find(text))
	}

	if root != nil {
		if n := root.child("home"); n != nil && n.kind == scalar && n.text != "" {
			// Problems are dropped: config check and the daemon report them, and a home can still be found.
			text, _ := d.expand(n, "home", false)
			return d.resolve(path, text), nil
		}
	}

	return DefaultHome(getenv)
}
