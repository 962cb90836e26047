package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rouse/agent/model"
)

// RunEncodeCache checks that an adapter sends the same bytes with a cache of what it encoded before
// as without one, however a conversation continues: with notices that are part of one request
// alone, with shortened results, with turns left out, with other tools. adapter is its name in
// model.Message.Raw.
func RunEncodeCache(t *testing.T, adapter string, provider func(url string) model.Provider) {
	var sent [][]byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := dialectOf(r)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		sent = append(sent, body)
		_, _ = io.WriteString(w, strings.Join(d.frames(Turn{Text: "ok"}), ""))
	}))

	defer s.Close()

	p := provider(s.URL)
	rapid.Check(t, func(rt *rapid.T) {
		c := &conversation{T: rt, adapter: adapter, messages: []model.Message{{Role: model.RoleUser, Text: "Go."}}}
		cache := &model.EncodeCache{}
		for range rapid.IntRange(1, 12).Draw(rt, "requests") {
			c.step()
			r := c.request()
			sent = nil

			for _, r.EncodeCache = range []*model.EncodeCache{cache, nil} {
				for _, err := range p.Stream(t.Context(), r) {
					if err != nil {
						rt.Fatal(err)
					}
				}
			}

			if len(sent) != 2 || !bytes.Equal(sent[0], sent[1]) || !json.Valid(sent[0]) {
				rt.Fatalf("with a cache and without:\n%s", bytes.Join(sent, []byte("\n")))
			}
		}
	})
}

// conversation is a random one.
type conversation struct {
	*rapid.T
	adapter  string
	messages []model.Message
	calls    int
}

var words = rapid.SampledFrom([]string{"", " ", "one", "<b>\"ü\"</b>\n", `{"ok":true,"result":{"n":1}}`, `{"ok":false,"kind":"not_found"}`, strings.Repeat("long ", 300)})

// step adds to the conversation, or changes it.
func (c *conversation) step() {
	switch rapid.IntRange(0, 9).Draw(c.T, "what") {
	case 0:
		c.messages = append(c.messages, model.Message{Role: model.RoleUser, Text: words.Draw(c.T, "user")})
	case 1: // compaction
		c.messages = c.compacted()
	case 2: // a result is shortened
		c.messages = slices.Clone(c.messages)
		if m := &c.messages[rapid.IntRange(0, len(c.messages)-1).Draw(c.T, "which")]; m.Role == model.RoleTool {
			m.Text = `{"ok":true,"result":{"text":"left out"}}`
		}
	default:
		c.addTurn()
	}
}

// addTurn adds an answer and the results of its calls.
func (c *conversation) addTurn() {
	m := model.Message{Role: model.RoleAssistant, Text: words.Draw(c.T, "text")}
	var results []model.Message
	for range rapid.IntRange(0, 2).Draw(c.T, "calls") {
		c.calls++
		call := model.Call{ID: fmt.Sprint("call.", c.calls), Key: "k", Name: "db_query", Args: json.RawMessage(`{"sql":"select 1 < 2"}`)}
		m.Calls = append(m.Calls, call)
		results = append(results, model.Message{Role: model.RoleTool, CallID: call.ID, Name: call.Name, Text: words.Draw(c.T, "result")})
	}

	if rapid.Bool().Draw(c.T, "opaque") {
		parts := []string{`{"opaque":"c2ln"}`, fmt.Sprintf(`{"text":%d}`, len(m.Text))}
		for i := range m.Calls {
			parts = append(parts, fmt.Sprintf(`{"call":%d,"opaque":"c2ln"}`, i+1))
		}
		m.Raw = json.RawMessage(fmt.Sprintf(`{"by":%q,"model":"scripted","parts":[%s]}`, c.adapter, strings.Join(parts, ",")))
	}

	c.messages = append(append(c.messages, m), results...)
}

// compacted leaves out the turns before one of them.
func (c *conversation) compacted() []model.Message {
	first := c.messages[0]
	first.Text = "Go. Something was left out."
	for i := rapid.IntRange(1, len(c.messages)).Draw(c.T, "left out"); i < len(c.messages); i++ {
		if c.messages[i].Role == model.RoleAssistant {
			return append([]model.Message{first}, c.messages[i:]...)
		}
	}

	return []model.Message{first}
}

func (c *conversation) request() model.Request {
	r := model.Request{System: rapid.SampledFrom([]string{"", "Be brief.", " "}).Draw(c.T, "system"), Messages: c.messages,
		NoTools: rapid.IntRange(0, 9).Draw(c.T, "tools") == 0, Tools: question.Tools[:rapid.SampledFrom([]int{0, 1, 2, 2, 2, 2}).Draw(c.T, "how many")]}
	if rapid.IntRange(0, 3).Draw(c.T, "notice") == 0 {
		last := len(r.Messages) - 1
		m := r.Messages[last]
		m.Text += "\n\n[System Notice] hurry"
		r.Messages = append(slices.Clone(r.Messages[:last]), m)
	}

	return r
}
