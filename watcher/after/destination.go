package after

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"rouse/internal/ledger/claim"
	"rouse/internal/text"
)

// maxPart is the maximum length of an expanded part of a destination, in bytes. It leaves room for
// a number.
const maxPart = 200

// SplitTemplate splits a destination into the folder before its first template and the rest. The
// last part of the rest is the file name if it contains .File. Otherwise it is a folder.
// SplitTemplate returns an error if the template could leave the folder.
func SplitTemplate(to string) (dir, template string, err error) {
	to = filepath.ToSlash(to)
	before, _, found := strings.Cut(to, "{{")
	if !found {
		return to, "", nil
	}
	at := strings.LastIndexByte(before, '/') + 1
	if at == 0 || strings.Trim(to[:at], "/") == "" {
		return "", "", errors.New("begins with a template; begin with a folder, as in ./sorted/{{ .File.Name }}")
	}
	for _, part := range parts(to[at:]) {
		if part == ".." {
			return "", "", errors.New("has .. after a template; name the folder itself")
		}
	}
	return to[:at], to[at:], nil
}

// parts splits the template of a path at its slashes, but not within {{ }}.
func parts(template string) (out []string) {
	var part strings.Builder
	for rest := template; rest != ""; {
		text, after, action := strings.Cut(rest, "{{")
		for text != "" {
			name, more, slash := strings.Cut(text, "/")
			part.WriteString(name)
			if text = more; slash {
				out = append(out, part.String())
				part.Reset()
			}
		}
		if rest = after; action {
			inner, behind, closed := strings.Cut(after, "}}")
			part.WriteString("{{" + inner)
			if rest = behind; closed {
				part.WriteString("}}")
			}
		}
	}
	return append(out, part.String())
}

// destination returns the new folder of a file, relative to rule.Dir, and its new name.
func (m *Mover) destination(ctx context.Context, rule Rule, c claim.Status) (below, name string, err error) {
	name = path.Base(c.Path)
	if rule.Template == "" {
		return "", name, nil
	}
	if m.Expand == nil {
		return "", "", fmt.Errorf("%s has a template, which only the daemon can expand", rule.Template)
	}

	all := parts(rule.Template)
	for i, part := range all {
		text, err := m.Expand(ctx, part, c)
		if err != nil {
			return "", "", fmt.Errorf("the destination %s: %w", rule.Template, err)
		}
		switch {
		case i == len(all)-1 && strings.Contains(part, ".File"):
			name = safeName(text, false)
		case text != "" && text != "." || strings.Contains(part, "{{"):
			below = filepath.Join(below, safeName(text, strings.Contains(part, "{{")))
		}
	}
	return below, name, nil
}

// safeName turns an expanded part with untrusted values into a single file or folder name. A
// folder name never begins with a dot.
func safeName(s string, folder bool) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == unicode.ReplacementChar || unicode.IsControl(r) {
			return '_'
		}
		return r
	}, s))
	if ext := filepath.Ext(s); len(s) > maxPart {
		ext = text.HeadBytes(ext, maxPart/2)
		s = text.HeadBytes(s, maxPart-len(ext)) + ext
	}
	if hidden := strings.HasPrefix(s, "."); s == "." || s == ".." || folder && hidden {
		s = "_" + s[1:]
	}
	if s == "" || !filepath.IsLocal(s) {
		return "_"
	}
	return s
}
