package module

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nlnwa/whatwg-url/url"
)

// urlParts are what a URL object shows.
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

// hostURL reads an address, relative to a base unless that is empty, and sets one part of it unless that is "". It
// answers in JSON: null where it is no address. What a module takes an address for decides nothing: the host reads it
// again.
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
		return "null", nil //nolint:nilerr // that it is no address is the answer
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

// origin is null for addresses that have none of their own.
func origin(u *url.Url) string {
	switch u.Protocol() {
	case "http:", "https:", "ws:", "wss:", "ftp:":
		return u.Protocol() + "//" + u.Host()
	}
	return "null"
}
