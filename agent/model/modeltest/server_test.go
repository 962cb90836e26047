package modeltest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
)

// TestServerIsStrict checks that the server rejects the same requests as real servers.
func TestServerIsStrict(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "ok", Calls: []model.Call{{ID: "a", Name: "x", Args: json.RawMessage(`{}`)}}})
	const (
		user   = `{"role":"user","content":"hi"}`
		asks   = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"x","arguments":"{}"}}]}`
		result = `{"role":"tool","tool_call_id":"a","content":"{}"}`
	)
	for name, c := range map[string]struct {
		path     string
		messages []string
		say      string
	}{
		"answered":        {"/v1/chat/completions", []string{user, asks, result, user}, `"finish_reason":"tool_calls"`},
		"another path":    {"/chat", []string{user}, "there is no POST /chat here"},
		"nothing said":    {"/v1/chat/completions", nil, "required"},
		"unanswered":      {"/v1/chat/completions", []string{user, asks, user}, `must be answered first`},
		"open at the end": {"/v1/chat/completions", []string{user, asks}, `must be answered first`},
		"never called":    {"/v1/chat/completions", []string{user, result}, `messages[1] answers`},
		"broken call":     {"/v1/chat/completions", []string{user, strings.Replace(asks, `"{}"`, `"{"`, 1), result}, "JSON arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := http.Post(s.URL+c.path, "application/json", strings.NewReader(`{"model":"m","messages":[`+strings.Join(c.messages, ",")+`]}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()

			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}

			var refusal struct{ Error struct{ Message string } }
			if json.Unmarshal(text, &refusal) == nil {
				text = []byte(refusal.Error.Message)
			}
			if !strings.Contains(string(text), c.say) || (resp.StatusCode == 200) != (name == "answered") {
				t.Errorf("%s: %s", resp.Status, text)
			}
		})
	}
}
