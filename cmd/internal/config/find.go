package config

import (
	"bytes"
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
	root, whole := d.parseHead(path, text)
	if !whole {
		root = d.parse(path, text)
	}
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

// parseHead reads a file as far as its home, or finds that it has none, so that a command need not read ten thousand jobs to know where
// the daemon is. It is false where only all of the text can tell; what it finds is what parse finds.
//
// A line that begins with a word at its very beginning ends whatever stands above it in a mapping that begins there, but for a quoted text
// and for brackets that are open, and those are no YAML when they are cut off there. So the text above such a line means by itself what it
// means in the file. And a mapping all of whose lines begin with a plain key, a space or a comment has no key that is not seen here.
func (d *decoder) parseHead(path string, text []byte) (*node, bool) {
	// YAML knows other ends of lines, behind which a key could begin.
	keys, plain := 0, !bytes.ContainsAny(text, "\r\u0085\u2028\u2029")
	for at := 0; at < len(text); {
		end := len(text)
		if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
			end = at + n + 1
		}

		switch line := text[at:end]; {
		case isWordByte(line[0]):
			if keys++; bytes.HasPrefix(line, []byte("home:")) {
				return d.parseUpTo(path, text, nextKey(text, end))
			}
			plain = plain && !bytes.HasPrefix(line, []byte("home"))
		case keys == 0 && line[0] != '#' && line[0] != '\n': // the mapping may begin elsewhere
			return nil, false
		case !bytes.Contains([]byte(" #\n]}"), line[:1]):
			plain = false // a key that is written in another way, or a second document
		}
		at = end
	}

	return &node{kind: mapping}, plain && keys > 0
}

// nextKey is where the next line begins with a word.
func nextKey(text []byte, at int) int {
	for at < len(text) && !isWordByte(text[at]) {
		n := bytes.IndexByte(text[at:], '\n')
		if n < 0 {
			return len(text)
		}
		at += n + 1
	}
	return at
}

func isWordByte(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' }

// parseUpTo reads the beginning of a text; it is false where that cannot stand by itself.
func (d *decoder) parseUpTo(path string, text []byte, end int) (*node, bool) {
	before := len(d.problems)
	root := d.parse(path, text[:end])
	if root == nil || len(d.problems) > before || root.child("home") == nil {
		return nil, false
	}
	return root, true
}
