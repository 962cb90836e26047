package gitview

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// setting is an entry of a git configuration. Section and key are in lower case, because git
// ignores their case.
type setting struct {
	section, sub, key, value string
	named                    bool // sub is set
}

var errDamaged = errors.New("the configuration of the repository cannot be read")

// parser parses git's configuration format (git-config(1), "Syntax").
type parser struct {
	rest     []byte
	comments bool
}

// parse returns the settings of a configuration and reports whether it has comments. It does not
// read included files.
func parse(text []byte) (out []setting, comments bool, err error) {
	p := &parser{rest: bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))}
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, false, errDamaged
	}

	var at setting
	for {
		switch c, ok := p.next(); {
		case !ok:
			return out, p.comments, nil
		case c == '#' || c == ';':
			p.comment()
		case isSpace(c):
		case c == '[':
			if at, err = p.section(); err != nil {
				return nil, false, err
			}
		case isLetter(c) && at.section != "":
			s := at
			if s.key, s.value, err = p.entry(c); err != nil {
				return nil, false, err
			}
			out = append(out, s)
		default:
			return nil, false, fmt.Errorf("%w: it has %q outside of an entry", errDamaged, c)
		}
	}
}

func (p *parser) next() (byte, bool) {
	if len(p.rest) == 0 {
		return 0, false
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	return c, true
}

func (p *parser) comment() {
	p.comments = true
	for c, ok := p.next(); ok && c != '\n'; c, ok = p.next() {
	}
}

// section parses a header such as [core] or [remote "origin"], after its opening bracket.
func (p *parser) section() (s setting, err error) {
	end := bytes.IndexAny(p.rest, "] \t")
	if end < 1 {
		return s, errDamaged
	}
	name := strings.ToLower(string(p.rest[:end]))
	if strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f || !isWord(byte(r)) && r != '.' }) {
		return s, errDamaged
	}
	s.section, s.sub, s.named = strings.Cut(name, ".")
	p.rest = bytes.TrimLeft(p.rest[end:], " \t")
	if c, _ := p.next(); c == ']' {
		return s, nil
	} else if c != '"' || s.named {
		return s, errDamaged
	}

	s.named = true
	var sub strings.Builder
	for {
		c, ok := p.next()
		switch c {
		case '\\':
			c, ok = p.next()
		case '"':
			s.sub = sub.String()
			if c, _ = p.next(); c != ']' {
				return s, errDamaged
			}
			return s, nil
		}
		if !ok || c == '\n' {
			return s, errDamaged
		}
		sub.WriteByte(c)
	}
}

// entry parses a name and its value, after the first letter of the name.
func (p *parser) entry(first byte) (key, value string, err error) {
	end := slices.IndexFunc(p.rest, func(c byte) bool { return !isWord(c) })
	if end < 0 {
		end = len(p.rest)
	}
	key = strings.ToLower(string(first) + string(p.rest[:end]))
	p.rest = bytes.TrimLeft(p.rest[end:], " \t")
	switch c, ok := p.next(); {
	case !ok || c == '\n':
		return key, "true", nil
	case c != '=':
		return "", "", errDamaged
	}
	value, err = p.value()
	return key, value, err
}

// value parses a value, after its equals sign, to the end of its last line.
func (p *parser) value() (string, error) {
	var out strings.Builder
	quoted, kept := false, 0 // length without trailing blanks
	for {
		c, ok := p.next()
		switch {
		case quoted && (!ok || c == '\n'):
			return "", errDamaged
		case !ok || c == '\n':
			return out.String()[:kept], nil
		case !quoted && isSpace(c):
			if out.Len() > 0 {
				out.WriteByte(c)
			}
			continue
		case !quoted && (c == '#' || c == ';'):
			p.comment()
			return out.String()[:kept], nil
		case c == '"':
			quoted = !quoted
		case c == '\\':
			c, ok = p.next()
			if c == '\n' && ok {
				continue
			}
			i := strings.IndexByte(`ntb\"`, c)
			if i < 0 || !ok {
				return "", errDamaged
			}
			out.WriteByte("\n\t\b\\\""[i])
		default:
			out.WriteByte(c)
		}
		kept = out.Len()
	}
}

func isSpace(c byte) bool  { return strings.IndexByte(" \t\n\r\v\f", c) >= 0 }
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isWord(c byte) bool   { return isLetter(c) || c >= '0' && c <= '9' || c == '-' }
