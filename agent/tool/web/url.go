package web

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"rouse/internal/urlpath"
)

// target is a URL in canonical form.
type target struct {
	url  *url.URL   // without user and fragment; its Host is canonical
	host string     // lower-case ASCII name without a final dot, or an IP address
	port uint16     // always set, even to the scheme's default
	addr netip.Addr // set if the host is an IP address
}

// String returns the URL in the form used for comparison and display.
func (t target) String() string { return t.url.String() }

// origin returns scheme, host and port, which identify a server.
func (t target) origin() string {
	return t.url.Scheme + "://" + net.JoinHostPort(t.host, strconv.Itoa(int(t.port)))
}

// schemes maps the supported schemes to their default ports.
var schemes = map[string]uint16{"http": 80, "https": 443}

// parseURL parses a URL strictly. It rejects spellings that two parsers could read differently.
// Otherwise a check could see one host and the connection use another.
func parseURL(text string) (target, error) {
	if !utf8.ValidString(text) {
		return target{}, errors.New("it is not UTF-8")
	}

	for i := range len(text) {
		if c := text[i]; c <= ' ' || c == 0x7f || c == '\\' || c == '<' || c == '>' || c == '"' || c == '^' || c == '`' {
			return target{}, fmt.Errorf("a URL has no %q; write it as %%%02X", c, c)
		}
	}

	// url.Parse would decode an escaped host, so the check and the connection could see different
	// hosts.
	_, authority, _ := strings.Cut(text, "//")
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority = authority[:i]
	}
	if strings.Contains(authority, "%") {
		return target{}, fmt.Errorf("its host is not written plainly: %s", authority)
	}

	u, err := url.Parse(text)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return target{}, fmt.Errorf("it is not understood: %w", err)
	}

	return canonical(u)
}

// canonical returns the canonical form of a URL. It does not change u.
func canonical(u *url.URL) (target, error) {
	port, known := schemes[u.Scheme]
	switch {
	case !known:
		return target{}, errors.New("it must begin with https:// or http://")
	case u.User != nil:
		return target{}, errors.New("it holds a user or a password, which belong into a header")
	case u.Opaque != "" || u.Host == "":
		return target{}, errors.New("it has no host")
	}

	host, given, err := splitPort(u.Host)
	if err != nil {
		return target{}, err
	}

	if given != 0 {
		port = given
	}

	t := target{port: port}
	if t.host, t.addr, err = parseHost(host); err != nil {
		return target{}, err
	}

	plain := *u
	plain.Fragment, plain.RawFragment, plain.RawQuery = "", "", percentEncode(u.RawQuery)
	plain.Host = t.host
	if t.addr.Is6() {
		plain.Host = "[" + t.host + "]"
	}

	if port != schemes[u.Scheme] {
		plain.Host += ":" + strconv.Itoa(int(port))
	}

	// Like browsers. Rules are compared with the path that is sent.
	if clean := urlpath.Clean(plain.EscapedPath()); clean != plain.EscapedPath() {
		if plain.Path, err = url.PathUnescape(clean); err != nil {
			return target{}, fmt.Errorf("its path is not understood: %w", err)
		}
		plain.RawPath = clean
	}
	if plain.Path == "" {
		plain.Path = "/"
	}

	t.url = &plain
	return t, nil
}

// splitPort splits host:port. It returns port 0 if there is none, and removes the brackets of an
// IPv6 address.
func splitPort(text string) (host string, port uint16, err error) {
	host, rest := text, ""
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		end := strings.IndexByte(inner, ']')
		if end < 0 || !strings.Contains(inner[:end], ":") {
			return "", 0, fmt.Errorf("the host %s is not understood", text)
		}
		host, rest = inner[:end], inner[end+1:]
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		host, rest = text[:i], text[i:]
	}
	if rest == "" {
		return host, 0, nil
	}

	n, err := strconv.ParseUint(strings.TrimPrefix(rest, ":"), 10, 16)
	if err != nil || n == 0 || rest[0] != ':' || rest[1] == '0' {
		return "", 0, fmt.Errorf("%s has no port that is a number from 1 to 65535; an IPv6 address stands in brackets", text)
	}

	return host, uint16(n), nil
}

// labelPattern matches one label of a name. Underscores are not allowed by the standard but used in
// practice.
var labelPattern = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// parseHost parses a name or an IP address, without port and brackets.
func parseHost(text string) (host string, addr netip.Addr, err error) {
	if strings.Contains(text, ":") {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return "", addr, fmt.Errorf("%s is not an IPv6 address without a zone", text)
		}
		addr = addr.Unmap()
		return addr.String(), addr, nil
	}

	host = strings.ToLower(text)
	if percentEncode(host) != host || strings.Contains(host, "xn--") {
		if host, err = idna.Lookup.ToASCII(text); err != nil {
			return "", addr, fmt.Errorf("the host %q is not a name that exists in the DNS: %w", text, err)
		}
	}

	host = strings.TrimSuffix(host, ".")
	parts := strings.Split(host, ".")
	for _, part := range parts {
		if !labelPattern.MatchString(part) {
			return "", addr, fmt.Errorf("the host %q is not a name that exists in the DNS", text)
		}
	}

	if len(host) > 253 {
		return "", addr, errors.New("the host is longer than a name can be")
	}
	if !endsInNumber(parts[len(parts)-1]) {
		return host, addr, nil
	}

	// Some programs interpret 0x7f.1, 017700000001 and 2130706433 as 127.0.0.1. Accept only the
	// usual form.
	if addr, err = netip.ParseAddr(host); err != nil {
		return "", addr, fmt.Errorf("the host %q is a number and not an address like 192.0.2.1", text)
	}

	return addr.String(), addr, nil
}

// endsInNumber reports whether programs interpret a host with this last label as an IPv4 address
// (WHATWG URL).
func endsInNumber(last string) bool {
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// percentEncode escapes non-ASCII bytes.
func percentEncode(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if text[i] < 0x80 {
			b.WriteByte(text[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", text[i])
		}
	}

	return b.String()
}
