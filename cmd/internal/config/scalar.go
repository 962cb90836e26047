package config

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/internal/text"
)

// Duration is a Go duration, or a number of days: 90s, 1h30m, 7d.
type Duration time.Duration

// Size is a number of bytes: 10MiB.
type Size int64

// Path is a path; a relative one is taken from the folder of the file that holds it.
type Path string

// Name names something that a user made: it becomes a folder.
type Name string

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	// deviceName is what Windows keeps for devices, in any folder.
	deviceName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])$`)
)

// ParseDuration reads a length of time.
func ParseDuration(s string) (time.Duration, error) {
	d, err := text.ParseSpan(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a length of time like 30s, 15m, 6h or 7d", short(s))
	}
	return d, nil
}

func (d Duration) String() string { return text.FormatSpan(time.Duration(d)) }

// String is exact: a size that no unit divides is a number of bytes.
func (s Size) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for s >= 1024 && s%1024 == 0 {
		s, i = s/1024, i+1
	}
	return fmt.Sprintf("%d%s", s, units[i])
}

// sizePattern matches a size: a number, and a unit with or without its B. The units with an i are powers of 1024.
var sizePattern = regexp.MustCompile(`(?i)^([0-9.,]+)\s*(?:([kmgtpe])(i?))?b?\s*$`)

func parseSize(text string) (Size, error) {
	if m := sizePattern.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		base := 1000.0
		if m[3] != "" {
			base = 1024
		}
		n *= math.Pow(base, float64(strings.Index(" kmgtpe", strings.ToLower(m[2]))))
		if err == nil && n < math.MaxInt64 {
			return Size(n), nil
		}
	}
	return 0, fmt.Errorf("%q is not a size like 500KiB or 10MiB", short(text))
}

func (d *decoder) scalar(n *node, path string, v reflect.Value, f field) {
	if f.secret && n.comment != "" { // it may be the rest of the secret
		d.secret(n.at, path, strings.TrimPrefix(n.comment, "#"))
	}
	if n.kind != scalar || n.null() {
		d.problem(n.at, path, "must be %s, not %s", typeName(v.Type()), n).Hint = n.quoted(lastKey(path))
		return
	}
	if v.Type() == reflect.TypeFor[string]() && f.isText() {
		d.cutText(n, path)
	}

	text, ok := d.expand(n, path, f.secret)
	if !ok {
		return
	}

	if err := d.set(n, text, v); err != nil {
		d.problem(n.at, path, "%s", err.Error())
		return
	}

	// A zero would be filled with the default afterwards, which is not what was written.
	if f.positive && v.IsZero() {
		d.problem(n.at, path, "must be more than 0; leave it out for its default")
	}

	if f.enum != "" {
		d.oneOf(n, path, text, f.enum)
	}
}

func (d *decoder) oneOf(n *node, path, given, enum string) {
	known := strings.Split(enum, "|")
	if slices.Contains(known, given) {
		return
	}

	p := d.problem(n.at, path, "%q is none of %s", short(given), strings.Join(known, ", "))
	if lines := linesFor(valueSynonyms[placeOf(path)], given); lines != "" {
		p.Hint = "write " + lines
		return
	}
	p.Hint = text.DidYouMean(given, known)
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Duration]():
		return "a length of time"
	case reflect.TypeFor[Size]():
		return "a size"
	case reflect.TypeFor[Path]():
		return "a path"
	}

	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}

	return "a text"
}

// set parses a text into a field.
func (d *decoder) set(n *node, text string, v reflect.Value) error {
	switch v.Type() {
	case reflect.TypeFor[Duration]():
		t, err := ParseDuration(text)
		v.SetInt(int64(t))
		return err
	case reflect.TypeFor[Size]():
		s, err := parseSize(text)
		v.SetInt(int64(s))
		return err
	case reflect.TypeFor[Path]():
		if text == "" || strings.ContainsRune(text, 0) {
			return fmt.Errorf("must be a path, not %s", n)
		}
		if strings.Contains(text, "{{") {
			return fmt.Errorf("%s has a template, and templates are not expanded here; write the path itself", n)
		}
		if err := shellPath(n.text); err != nil {
			return err
		}
		v.SetString(d.resolve(n.at.File, text))
		return nil
	case reflect.TypeFor[Name]():
		v.SetString(text)
		switch {
		case !nameForm.MatchString(text):
			return fmt.Errorf("%q cannot be a name: letters, digits, _ and - are allowed, up to 63, beginning with a letter or digit", short(text))
		case deviceName.MatchString(text):
			return fmt.Errorf("%q cannot be a name: it would be a folder, and Windows has a device of that name", text)
		}

		return nil
	}
	return setPlain(text, v)
}

func setPlain(text string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		// Not yes, on and y as in YAML 1.1: people also mean them as texts.
		if text != "true" && text != "false" {
			return fmt.Errorf("must be true or false, not %q", short(text))
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || i < 0 || v.OverflowInt(i) {
			return fmt.Errorf("must be a whole number from 0 on, not %q", short(text))
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
			return fmt.Errorf("must be a number from 0 on, not %q", short(text))
		}
		v.SetFloat(f)
	default:
		v.SetString(text)
	}
	return nil
}

// resolve makes a path absolute: relative to the file that holds it, with ~ for the user's folder.
func (d *decoder) resolve(file, text string) string {
	if rest, ok := strings.CutPrefix(filepath.ToSlash(text), "~"); ok && (rest == "" || rest[0] == '/') {
		if home, err := userHome(d.Getenv); err == nil {
			return filepath.Join(home, rest)
		}
	}

	if filepath.IsAbs(text) {
		return filepath.Clean(text)
	}
	return filepath.Join(filepath.Dir(file), text)
}
