package imports

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// unit is a systemd unit file.
type unit struct {
	name  string // such as backup.timer
	lines []directive
	odd   []string // lines that are not directives
}

// directive is a Key=Value setting. Continuation lines are joined.
type directive struct {
	section, key, value string
	at                  int
	used                bool
}

// parseUnit parses a unit file as defined by systemd.syntax(7).
func parseUnit(f File) *unit {
	u := &unit{name: path.Base(strings.ReplaceAll(f.Name, `\`, "/"))}
	section := ""
	lines := strings.Split(f.Text, "\n")
	for i := 0; i < len(lines); i++ {
		at, line := i+1, strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' || line[0] == ';' {
			if line != "" {
				u.odd = append(u.odd, where(u.name, at, line))
			}
			continue
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			next := strings.TrimSpace(lines[i])
			// systemd allows comments between continuation lines.
			if next != "" && (next[0] == '#' || next[0] == ';') {
				u.odd = append(u.odd, where(u.name, i+1, next))
				continue
			}
			line = strings.TrimSuffix(line, `\`) + " " + next
		}

		if line[0] == '[' && strings.HasSuffix(line, "]") {
			section = line[1 : len(line)-1]
			continue
		}
		key, value, found := strings.Cut(line, "=")
		if !found {
			u.odd = append(u.odd, where(u.name, at, "is not understood: "+line))
			continue
		}
		d := directive{section: section, key: strings.TrimSpace(key), value: strings.TrimSpace(value), at: at}
		u.lines = append(u.lines, d)
	}
	u.reset()
	return u
}

// reset marks empty values and the earlier values of the same key as used: an empty value clears
// the key.
func (u *unit) reset() {
	for i := range u.lines {
		if u.lines[i].value != "" {
			continue
		}
		u.lines[i].used = true
		for k := range i {
			if u.lines[k].section == u.lines[i].section && u.lines[k].key == u.lines[i].key {
				u.lines[k].used = true
			}
		}
	}
}

// all returns the unused values of a key and marks them as used.
func (u *unit) all(section, key string) (out []string) {
	for i, d := range u.lines {
		if d.section == section && d.key == key && !d.used {
			out, u.lines[i].used = append(out, d.value), true
		}
	}
	return out
}

// last returns the last value of a key.
func (u *unit) last(section, key string) string {
	if all := u.all(section, key); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// rest returns the directives that were not used.
func (u *unit) rest() (out []directive) {
	for _, d := range u.lines {
		if !d.used {
			out = append(out, d)
		}
	}
	return out
}

func isTrue(s string) bool {
	switch strings.ToLower(s) {
	case "1", "yes", "y", "true", "t", "on":
		return true
	}
	return false
}

// splitWords splits a line like systemd, with quotes and C escapes.
func splitWords(line string) (out []string, err error) {
	var word strings.Builder
	quote, within := byte(0), false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line):
			n, text := unescapeC(line[i+1:])
			word.WriteString(text)
			i, within = i+n, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, within = c, true
		case c == ' ' || c == '\t':
			if within {
				out = append(out, word.String())
				word.Reset()
			}
			within = false
		default:
			word.WriteByte(c)
			within = true
		}
	}

	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed")
	}

	if within {
		out = append(out, word.String())
	}

	return out, nil
}

// unescapeC decodes the escape after a backslash. It returns the number of bytes read and the
// decoded text.
func unescapeC(s string) (int, string) {
	simple := map[byte]string{'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\\': `\`, '"': `"`, '\'': "'", 's': " ", ';': ";"}
	if text, ok := simple[s[0]]; ok {
		return 1, text
	}
	read := func(from, digits, base int) (int, string) {
		if len(s) < from+digits {
			return 1, `\` + s[:1]
		}
		n, err := strconv.ParseUint(s[from:from+digits], base, 32)
		if err != nil || n == 0 || n > 0x10ffff {
			return 1, `\` + s[:1]
		}
		return from + digits, string(rune(n))
	}
	switch s[0] {
	case 'x':
		return read(1, 2, 16)
	case 'u':
		return read(1, 4, 16)
	case 'U':
		return read(1, 8, 16)
	case '0', '1', '2', '3':
		return read(0, 3, 8)
	}
	return 1, `\` + s[:1]
}
