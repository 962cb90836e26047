package yaml

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/internal/text"
)

func (d *decoder) scalar(n *node, path string, v reflect.Value, f config.Field) {
	if f.Secret && n.comment != "" { // the comment may be the rest of the secret
		d.secret(n.at, path, strings.TrimPrefix(n.comment, "#"))
	}
	if n.kind != scalar || n.null() {
		d.Problem(n.at, path, "must be %s, not %s", typeName(v.Type()), n).Hint = n.quoted(LastKey(path))
		return
	}
	if v.Type() == reflect.TypeFor[string]() && isText(f) {
		d.cutText(n, path)
	}

	text, ok := d.expand(n, path, f.Secret)
	if !ok {
		return
	}

	if err := d.set(n, text, v); err != nil {
		d.Problem(n.at, path, "%s", err.Error())
		return
	}

	// A written zero would later be replaced by the default.
	if f.Positive && v.IsZero() {
		d.Problem(n.at, path, "must be more than 0; leave it out for its default")
	}

	if f.Enum != "" {
		d.oneOf(n, path, text, f.Enum)
	}
}

func (d *decoder) oneOf(n *node, path, given, enum string) {
	known := strings.Split(enum, "|")
	if slices.Contains(known, given) {
		return
	}

	p := d.Problem(n.at, path, "%q is none of %s", config.Short(given), strings.Join(known, ", "))
	if lines := linesFor(valueSynonyms[placeOf(path)], given); lines != "" {
		p.Hint = "write " + lines
		return
	}
	p.Hint = text.DidYouMean(given, known)
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[config.Duration]():
		return "a length of time"
	case reflect.TypeFor[config.Size]():
		return "a size"
	case reflect.TypeFor[config.Path]():
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
	case reflect.TypeFor[config.Duration]():
		t, err := config.ParseDuration(text)
		v.SetInt(int64(t))
		return err
	case reflect.TypeFor[config.Size]():
		s, err := config.ParseSize(text)
		v.SetInt(int64(s))
		return err
	case reflect.TypeFor[config.Path]():
		if text == "" || strings.ContainsRune(text, 0) {
			return fmt.Errorf("must be a path, not %s", n)
		}
		if strings.Contains(text, "{{") {
			return fmt.Errorf("%s has a template, and templates are not expanded here; write the path itself", n)
		}
		if err := ShellPath(n.text); err != nil {
			return err
		}
		v.SetString(d.Resolve(n.at.File, text))
		return nil
	case reflect.TypeFor[config.Name]():
		v.SetString(text)
		switch {
		case !config.NameForm.MatchString(text):
			return fmt.Errorf("%q cannot be a name: letters, digits, _ and - are allowed, up to 63, beginning with a letter or digit", config.Short(text))
		case config.DeviceName.MatchString(text):
			return fmt.Errorf("%q cannot be a name: it would be a folder, and Windows has a device of that name", text)
		}

		return nil
	}
	return setPlain(text, v)
}

func setPlain(text string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		// yes, on and y are refused, unlike in YAML 1.1, because they are often meant as texts.
		if text != "true" && text != "false" {
			return fmt.Errorf("must be true or false, not %q", config.Short(text))
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || i < 0 || v.OverflowInt(i) {
			return fmt.Errorf("must be a whole number from 0 on, not %q", config.Short(text))
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f < 0 || math.IsInf(f, 0) || math.IsNaN(f) {
			return fmt.Errorf("must be a number from 0 on, not %q", config.Short(text))
		}
		v.SetFloat(f)
	default:
		v.SetString(text)
	}
	return nil
}
