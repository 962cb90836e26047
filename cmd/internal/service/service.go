package service

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"

	"rouse/internal/fspath"
)

// Spec is a service: what is run, for which home, under which name. Paths are absolute.
type Spec struct {
	Name    string
	Program string
	Config  string
	Home    string
	Path    string        // the folders in which programs are looked up, as PATH
	Stop    time.Duration // how long the daemon may take to end
	User    string        // whose session it runs in, as the system writes it
}

// LogFile is where a daemon writes whose manager keeps no log.
func (s Spec) LogFile() string { return filepath.Join(s.Home, "service.log") }

// arguments are those of the program.
func (s Spec) arguments(logs bool) []string {
	out := []string{"serve", "--config", s.Config, "--home", s.Home}
	if logs {
		out = append(out, "--log-file", s.LogFile())
	}
	return out
}

// marker stands in what was written for a home. A hash, for a path may hold what would end a comment.
func (s Spec) marker() string { return writtenBy + " for home " + hash(s.Home) }

// writtenBy stands in all that was written.
const writtenBy = "Written by rouse service install"

func hash(home string) string {
	sum := sha256.Sum256([]byte(home))
	return hex.EncodeToString(sum[:6])
}

// nameForm is what every manager takes for a name.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// CheckName refuses what could not be the name of a service everywhere.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a service; write up to 64 letters, digits, dots, - and _, of which the first is a letter or a digit", name)
	}
	return nil
}

// DefaultName is the name of the service of a home: rouse for the user's own, and one for each other.
func DefaultName(home, usual string) string {
	if home == usual {
		return "rouse"
	}

	// Named by the folder that it is in, where the home itself is named as most are.
	base := filepath.Base(home)
	if plain := strings.TrimLeft(base, "."); plain == "rouse" || plain == "home" {
		base = filepath.Base(filepath.Dir(home))
	}
	base = strings.Trim(strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToLower(r)
		}
		return '-'
	}, base), "-")
	if len(base) > 24 {
		base = base[:24]
	}
	if base != "" {
		base += "-"
	}
	return "rouse-" + base + hash(home)[:6]
}

// check refuses what could not be written down for a manager.
func (s Spec) check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	for what, path := range map[string]string{"the program": s.Program, "the configuration": s.Config, "the home": s.Home} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s needs a full path, not %q", what, path)
		}
		if strings.ContainsFunc(path, unicode.IsControl) {
			return fmt.Errorf("%s has a control character in its path (%q), which no service manager reads; rename it", what, path)
		}
	}
	return nil
}

// Temporary says whether a program lies where it will not be found for long, as one that go run has built.
func Temporary(program string) bool {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && (fspath.Within(program, real) || fspath.Within(program, dir)) {
			return true
		}
	}
	return strings.Contains(program, string(filepath.Separator)+"go-build")
}
