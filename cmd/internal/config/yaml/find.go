package yaml

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/places"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
)

const fileName = "rouse.yaml"

var (
	homeLine = regexp.MustCompile(`(?m)^home:.*$`)
	// homeKey matches the key with all lines that may belong to its value.
	homeKey = regexp.MustCompile(`(?m)^home:.*(?:\n(?:[^A-Za-z_\n].*)?)*`)
)

// ErrNoFile is returned if no configuration is found.
var ErrNoFile = errors.New("no configuration was found")

// Find returns the path of the configuration: named, ./rouse.yaml, or the one in the home. The
// last two must pass CheckFound. It returns ErrNoFile if there is no such file.
func Find(named string, getenv func(string) string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}

	candidates := []string{fileName}
	if home, err := config.DefaultHome(getenv); err == nil {
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

// Home reads only the home of a configuration and ignores other problems.
func Home(path string, getenv func(string) string) (string, error) {
	if dir := getenv("ROUSE_HOME"); dir != "" {
		return filepath.Abs(dir)
	}

	text, err := config.ReadMain(path)
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}

	// Ignore problems, because config check and the daemon report them and the home may still be
	// readable.
	d := newDecoder(getenv)
	if n := d.findHome(path, text); n != nil && n.kind == scalar && n.text != "" {
		text, _ := d.expand(n, "home", false)
		return d.Resolve(path, text), nil
	}
	return config.DefaultHome(getenv)
}

// findHome returns the value of home, or nil if it is not set. If possible, it parses only the
// start of the file.
func (d *decoder) findHome(path string, text []byte) *node {
	if head := homeKey.FindIndex(text); head != nil {
		if root := d.parse(path, text[:head[1]]); root != nil && root.child("home") != nil {
			return root.child("home")
		}
	}
	root := d.parse(path, text)
	if root == nil { // the daemon may still run with the last valid configuration
		root = d.parse(path, homeLine.Find(text))
	}
	if root == nil {
		return nil
	}
	return root.child("home")
}

// CheckFound returns an error if another party may have put the configuration at an absolute path.
// That is possible if other users can write there, or if a nearby configuration lets an agent or
// strangers write there. --config skips this check.
//
// Nearby are the folders and homes above, and the configuration of the user's home.
func CheckFound(path string, getenv func(string) string) error {
	at, why := path, owner.WritableByOthers(path)
	if real, err := filepath.EvalSymlinks(path); err == nil && why == "" {
		at, why = real, owner.WritableByOthers(real)
	}
	if why != "" {
		mend := owner.Chmod(at)
		if mend != "" {
			mend = "take that right away with: " + mend + "; or, "
		}
		return fmt.Errorf("%s was found and is not taken for the configuration, since it %s; %sif it is yours, name it: --config %s", config.Display(path), why, mend, config.Display(path))
	}

	for _, other := range nearby(path, getenv) {
		writer, err := writerOf(other, path, getenv)
		switch {
		case err != nil:
			return fmt.Errorf("%s was found and is not taken for the configuration: whether agents may write there is up to %s, which cannot be read (%w); if it is yours, name it: --config %s", config.Display(path), config.Display(other), err, config.Display(path))
		case writer != "":
			return fmt.Errorf("%s was found and is not taken for the configuration: %s; if it is yours, name it: --config %s, or go to the folder of the configuration that you mean", config.Display(path), writer, config.Display(path))
		}
	}
	return nil
}

// nearby returns the user's own configurations that may grant access to the folder of a path.
func nearby(path string, getenv func(string) string) (out []string) {
	add := func(file string) {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && file != path && !slices.Contains(out, file) && owner.WritableByOthers(file) == "" {
			out = append(out, file)
		}
	}
	adopted := func(home string) {
		if stamp, err := config.ReadPlain(filepath.Join(home, config.AdoptedFile)); err == nil && filepath.IsAbs(string(stamp)) {
			add(string(stamp))
		}
	}

	if home, err := config.DefaultHome(getenv); err == nil {
		adopted(home)
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		add(filepath.Join(dir, fileName))
		adopted(dir)
	}
	return out
}

// writerOf describes a writer at a path according to another configuration, or returns "".
func writerOf(other, path string, getenv func(string) string) (string, error) {
	d := newDecoder(getenv)
	cfg := d.Config
	root, err := d.read(other, cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || root == nil {
		return "", errors.Join(err, d.Err())
	}

	for _, p := range places.All(cfg) {
		if places.Holds(nofollow.NewBoundary(p.Folder), filepath.Dir(path)) || places.Holds(nofollow.NewBoundary(p.Folder), path) {
			return fmt.Sprintf("%s %s (%s)", p.Who, p.Folder, d.Place(p.Key)), nil
		}
	}
	return "", nil
}

//go:embed starter.yaml
var starter []byte

// Starter returns the configuration that `rouse init` writes.
func Starter() []byte { return starter }
