package module

import (
	"strings"
	"testing"
)

// TestForgedEvents checks that events that a module cannot cause are rejected. A compromised
// process can send them.
func TestForgedEvents(t *testing.T) {
	t.Parallel()
	for text, e := range map[string]Event{
		"":                         {Calls: []Call{{ID: 1, Method: "storage.get", Args: []byte("[]")}}, End: &End{Status: Returned}},
		`cannot make: "vault.get"`: {Calls: []Call{{ID: 1, Method: "vault.get", Args: []byte("[]")}}},
		`cannot make: "log"`:       {Calls: []Call{{ID: 1, Method: "log", Args: []byte("[]")}}},
		`make: "storage.get"`:      {Calls: []Call{{ID: 0, Method: "storage.get", Args: []byte("[]")}}},
		`"storage.get"`:            {Calls: []Call{{ID: 1, Method: "storage.get", Args: []byte("{}")}}},
		"1001 calls at a time":     {Calls: make([]Call, 1001)},
		`way that is known: "won"`: {End: &End{Status: "won"}},
	} {
		err := e.check([]string{"storage.get"}, 0)
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}
