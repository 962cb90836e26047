package module

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nlnwa/whatwg-url/url"
)

// urlParts are the properties of a URL object.
type urlParts struct {
	Href     string `json:"href"`
	Origin   string `json:"origin"`
	Protocol string `json:"protocol"`
	Username string `json:"username"`
	Password string `json:"password"`
	Host     string `json:"host"`
	Hostname string `json:"hostname"`
	Port     string `json:"port"`
	Pathname string `json:"pathname"`
	Search   string `json:"search"`
	Hash     string `json:"hash"`
}

// hostURL parses a URL, relative to a base unless the base is "". It sets one part of the URL if a
// part is given. It returns JSON, or null if the URL is invalid. The result is not trusted: the
// host parses the URL again before it uses it.
func hostURL(args []any) (any, error) {
	text := make([]string, 4) // address, base, part, value
	if len(args) != len(text) {
		return nil, errors.New("an address is read with its base, and a part and its value")
	}
	for i, a := range args {
		text[i] = fmt.Sprint(a)
	}

	var u *url.Url
	var err error
	if text[1] == "" {
		u, err = url.Parse(text[0])
	} else {
		u, err = url.ParseRef(text[1], text[0])
	}
	if err != nil {
		return "null", nil //nolint:nilerr // null is the answer for an invalid URL
	}

	if set := map[string]func(string){
		"protocol": u.SetProtocol, "username": u.SetUsername, "password": u.SetPassword, "host": u.SetHost, "hostname": u.SetHostname,
		"port": u.SetPort, "pathname": u.SetPathname, "search": u.SetSearch, "hash": u.SetHash,
	}[text[2]]; set != nil {
		set(text[3])
	}

	out, err := json.Marshal(urlParts{
		Href: u.Href(false), Origin: origin(u), Protocol: u.Protocol(), Username: u.Username(), Password: u.Password(), Host: u.Host(),
		Hostname: u.Hostname(), Port: u.Port(), Pathname: u.Pathname(), Search: u.Search(), Hash: u.Hash(),
	})
	return string(out), err
}

// origin returns "null" for schemes without an origin.
func origin(u *url.Url) string {
	switch u.Protocol() {
	case "http:", "https:", "ws:", "wss:", "ftp:":
		return u.Protocol() + "//" + u.Host()
	}
	return "null"
}
