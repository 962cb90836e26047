package anthropic_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
)

var question = model.Request{System: "Be brief.", Messages: []model.Message{{Role: model.RoleUser, Text: "Go."}},
	Tools: []model.Tool{{Name: "db_query", Description: "asks", Schema: json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string"}}}`)}, {Name: "notify"}}}

func ask(t testing.TB, s *modeltest.Server, r model.Request) modeltest.Answer {
	t.Helper()
	return modeltest.Ask(t, t.Context(), provider(t, s.URL, modeltest.Limits{}), r)
}

// TestRequest checks that the results of a turn are sent in one message, in order. The prefix with
// which the next step begins must be marked for the cache if there is a next step.
func TestRequest(t *testing.T) {
	s := modeltest.New(t, modeltest.Turn{Text: "ok"})
	warm := 0.5
	r := question
	r.MaxOutput, r.Temperature = 99, &warm
	r.Messages = []model.Message{
		{Role: model.RoleUser, Text: "Go."}, {Role: model.RoleUser, Text: " "},
		{Role: model.RoleAssistant, Text: "\n", Calls: []model.Call{{ID: "a", Name: "db_query", Args: json.RawMessage(`{"sql":"x"}`)}, {ID: "b.1", Name: "notify"}}},
		{Role: model.RoleTool, CallID: "a", Name: "db_query", Text: `{"ok":true}`},
		{Role: model.RoleTool, CallID: "b.1", Name: "notify", Text: `{"kind":"not_found","ok":false}`},
		{Role: model.RoleUser, Text: "Go on."},
	}

	ask(t, s, r)
	const (
		mark     = `,"cache_control":{"type":"ephemeral"}`
		messages = `"messages":[{"role":"user","content":[{"type":"text","text":"Go."` + mark + `}]},` +
			`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"db_query","input":{"sql":"x"}},{"type":"tool_use","id":"b_1","name":"notify","input":{}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"{\"ok\":true}"},` +
			`{"type":"tool_result","tool_use_id":"b_1","content":"{\"kind\":\"not_found\",\"ok\":false}","is_error":true},{"type":"text","text":"Go on."` + mark + `}]}],`
		tools = `"tools":[{"name":"db_query","description":"asks","input_schema":{"type":"object","properties":{"sql":{"type":"string"}}}},{"name":"notify","input_schema":{"type":"object","properties":{}}}]`
		begin = `{"model":"scripted","max_tokens":99,`
		end   = `,"temperature":0.5,"stream":true}`
	)
	if got, want := string(s.Requests()[0]), begin+`"system":[{"type":"text","text":"Be brief."`+mark+`}],`+messages+tools+end; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}

	r.NoTools, r.System = true, ""
	ask(t, s, r)
	if got, want := string(s.Requests()[1]), begin+messages+strings.TrimSuffix(tools, "}]")+mark+`}],"tool_choice":{"type":"none"}`+end; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}

	ask(t, s, model.Request{System: "s", Messages: question.Messages})
	if got, want := string(s.Requests()[2]), `{"model":"scripted","max_tokens":32000,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"Go."}]}],"stream":true}`; got != want {
		t.Errorf("sent\n%s, want\n%s", got, want)
	}
}

// stream returns a turn of server-sent events with these data. Their names are the types in the
// data.
func stream(data ...string) modeltest.Turn {
	var b strings.Builder
	for _, d := range data {
		var e struct{ Type string }
		if json.Unmarshal([]byte(d), &e) == nil && e.Type != "" {
			b.WriteString("event: " + e.Type + "\n")
		}
		b.WriteString("data: " + d + "\n\n")
	}

	return modeltest.Turn{Raw: b.String()}
}

func body(raw string) modeltest.Turn {
	return modeltest.Turn{Header: map[string]string{"Content-Type": "application/json"}, Raw: raw}
}

const (
	start    = `{"type":"message_start","message":{"id":"msg_013Zva2CMHLNnXjNJJKqJ2EF","type":"message","role":"assistant","model":"claude-sonnet-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":2048,"cache_read_input_tokens":8192,"cache_creation":{"ephemeral_5m_input_tokens":2048,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}}}`
	begun    = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_01T1x1fJ34qAmk2tNTrN7Up6","name":"db_query","input":{}}}`
	fragment = `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"sql\":"}}`
	rest     = `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\"select 1\"}"}}`
	stopped  = `{"type":"content_block_stop","index":0}`
	last     = `{"type":"message_stop"}`
)

func ended(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null,"stop_details":null},"usage":{"output_tokens":89}}`
}

// TestAnswers checks unusual but valid answers of servers.
func TestAnswers(t *testing.T) {
	text := func(of string) []string {
		return []string{`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + of + `"}}`, stopped}
	}
	for name, c := range map[string]struct {
		turn  modeltest.Turn
		text  string
		stop  string
		calls string
		usage model.Usage
	}{
		"a call": {stream(start, `{"type":"ping"}`, begun, fragment, rest, stopped, ended("tool_use"), last), "", model.StopCalls, `db_query({"sql":"select 1"})`,
			model.Usage{Input: 12 + 2048 + 8192, Output: 89, Cached: 8192, Written: 2048}},
		"new events": {stream(append([]string{start, `{"type":"something_new","x":[1]}`}, append(text("a"), `{"type":"content_block_delta","index":9,"delta":{"type":"text_delta"}}`)[:3]...)...), "a", "", "", model.Usage{}},
		"citations": {stream(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a","citations":[]}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location"}}}`, stopped, ended("end_turn"), last), "a", model.StopDone, "", model.Usage{Output: 89}},
		"no message_stop": {stream(append(text("a"), ended("stop_sequence"))...), "a", model.StopDone, "", model.Usage{Output: 89}},
		"input at once":   {stream(strings.Replace(begun, `"input":{}`, `"input":{"sql":"x"}`, 1), stopped, ended("tool_use")), "", model.StopCalls, `db_query({"sql":"x"})`, model.Usage{Output: 89}},
		"no input":        {stream(begun, stopped, ended("tool_use")), "", model.StopCalls, `db_query({})`, model.Usage{Output: 89}},
		"a tool of the server": {stream(`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`, fragment, rest, stopped, ended("end_turn")),
			"", model.StopDone, "", model.Usage{Output: 89}},
		"the window is full": {stream(append(text("a"), ended("model_context_window_exceeded"))...), "a", model.StopLength, "", model.Usage{Output: 89}},
		"refusal":            {stream(append(text("No."), ended("refusal"))...), "No.", model.StopRefusal, "", model.Usage{Output: 89}},
		"does not stream": {body(`{"type":"message","role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"a"},{"type":"tool_use","id":"x","name":"notify","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}`),
			"a", model.StopCalls, `notify({"a":1})`, model.Usage{Input: 3, Output: 4}},
		"usage is all at the end": {stream(append([]string{`{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}`}, append(text("a"),
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":2}}`)...)...), "a", model.StopDone, "", model.Usage{Input: 15, Output: 2, Cached: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn), question)
			var calls []string
			for _, call := range got.Calls {
				calls = append(calls, call.Name+"("+string(call.Args)+")")
			}

			incomplete := c.stop == ""
			if made := strings.Join(calls, " "); (got.Err != nil) != incomplete || got.Text != c.text || got.Stop != c.stop || made != c.calls || got.Usage != c.usage {
				t.Errorf("%+v with %s\nwant %q, stop %q, calls %s, %+v", got, made, c.text, c.stop, c.calls, c.usage)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		turn      modeltest.Turn
		kind      model.ErrorKind
		retryable bool
		say       string
	}{
		"overloaded midway":    {stream(start, begun, fragment, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), model.KindUnavailable, true, "Overloaded"},
		"too long midway":      {stream(start, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}`), model.KindContextOverflow, false, "too long"},
		"limited midway":       {stream(start, `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`), model.KindRateLimited, true, "slow"},
		"error in a 200":       {body(`{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key ` + key + `"}}`), model.KindAuth, false, "[secret]"},
		"something in a 200":   {body(`{"id":1}`), model.KindInvalidResponse, true, "without a choice"},
		"no reason":            {stream(start, begun, fragment, rest, stopped, last), model.KindTruncated, true, "before it was complete"},
		"a call without end":   {stream(start, begun, fragment, rest, ended("tool_use"), last), model.KindTruncated, true, "before it was complete"},
		"half a call":          {stream(start, begun, fragment, stopped, ended("tool_use"), last), model.KindInvalidResponse, true, "db_query with arguments that are not a JSON object"},
		"a lost beginning":     {stream(start, fragment, stopped, ended("tool_use"), last), model.KindInvalidResponse, true, "a piece of block 0"},
		"a piece after an end": {stream(start, begun, fragment, stopped, rest, ended("tool_use")), model.KindInvalidResponse, true, "a piece of block 0"},
		"twice begun":          {stream(start, begun, begun, fragment, rest, stopped, ended("tool_use")), model.KindInvalidResponse, true, "block 0 begins where block 1 should"},
		"a gap":                {stream(start, strings.Replace(begun, `"index":0`, `"index":1`, 1)), model.KindInvalidResponse, true, "block 1 begins where block 0 should"},
		"refusal with a call":  {stream(start, begun, fragment, rest, stopped, ended("refusal"), last), model.KindBadRequest, false, "withheld a part of its answer (refusal)"},
		"pauses for ever":      {stream(start, ended("pause_turn"), last), model.KindUnavailable, true, "gave up in the middle of its answer (pause_turn)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn), question)
			var e *model.Error
			if !errors.As(got.Err, &e) || e.Kind != c.kind || e.Retryable != c.retryable || !strings.Contains(e.Error(), c.say) || len(got.Calls) > 0 || strings.Contains(e.Error(), "canary") {
				t.Errorf("%+v\nwant %s (%v) that says %q", got, c.kind, c.retryable, c.say)
			}
		})
	}
	// Counts in the middle of an answer are not its cost. Counts at its end are.
	for _, c := range []struct {
		turn modeltest.Turn
		want model.Usage
	}{
		{stream(start, begun, fragment), model.Usage{}},
		{stream(start, begun, fragment, stopped, ended("max_tokens")), model.Usage{Input: 10252, Output: 89, Cached: 8192, Written: 2048}},
	} {
		if got := ask(t, modeltest.New(t, c.turn), question); got.Err == nil || got.Usage != c.want {
			t.Errorf("%+v (%v), want %+v", got.Usage, got.Err, c.want)
		}
	}
}

// TestPause checks that a paused model is asked to continue with its answer so far. Both parts form
// one answer, and both are paid for.
func TestPause(t *testing.T) {
	first := stream(start, `{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`, fragment, rest, stopped,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"I look. "}}`, `{"type":"content_block_stop","index":1}`, ended("pause_turn"), last)
	s := modeltest.New(t, first, modeltest.Turn{Text: "Found.", Usage: model.Usage{Input: 10, Output: 5}})
	got := ask(t, s, question)
	if want := (model.Usage{Input: 10252 + 10, Output: 89 + 5, Cached: 8192, Written: 2048 + 4}); got.Err != nil || got.Text != "I look. Found." || got.Stop != model.StopDone || got.Usage != want || len(got.Raw) == 0 {
		t.Fatalf("answer: %+v, usage want %+v", got, want)
	}

	var sent struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(s.Requests()[1], &sent); err != nil || len(sent.Messages) != 2 {
		t.Fatalf("%v: %s", err, s.Requests()[1])
	}
	if got, want := string(sent.Messages[1].Content), `[{"id":"s","input":{"sql":"select 1"},"name":"web_search","type":"server_tool_use"},{"type":"text","text":"I look. "}]`; got != want {
		t.Errorf("said so far\n%s, want\n%s", got, want)
	}
}

// TestKeptForAnHour checks which parts of a request are cached for an hour, and that writing them
// has its own price.
func TestKeptForAnHour(t *testing.T) {
	const minutes, hour = `"cache_control":{"type":"ephemeral"}`, `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	s := modeltest.New(t, stream(strings.Replace(start, `"ephemeral_1h_input_tokens":0`, `"ephemeral_1h_input_tokens":2000`, 1), ended("end_turn"), last))
	r := question
	for i, c := range []struct {
		tools, all     bool
		hours, minutes int // number of marks
	}{{false, false, 0, 2}, {true, false, 1, 2}, {false, true, 2, 0}, {true, true, 2, 0}} {
		r.KeepTools, r.KeepAll = c.tools, c.all
		a := ask(t, s, r)
		sent := string(s.Requests()[i])
		if strings.Count(sent, hour) != c.hours || strings.Count(sent, minutes) != c.minutes {
			t.Errorf("%+v: sent %s", c, sent)
		}
		if at := strings.LastIndex(sent, hour); c.tools && !c.all && at < strings.Index(sent, `"tools":`) {
			t.Errorf("not the tools are kept: %s", sent)
		}
		if a.Usage.Written != 2048 || a.Usage.WrittenLong != 2000 {
			t.Errorf("%+v: %v", a.Usage, a.Err)
		}
	}
}

// TestAdapts checks that a request is repeated once without a feature that the server rejects.
func TestAdapts(t *testing.T) {
	thought := modeltest.Turn{Text: "I look.", Calls: []model.Call{{ID: "a", Name: "notify", Args: json.RawMessage(`{}`)}}, Opaque: "c2ln"}
	for name, c := range map[string]struct {
		refusal       string
		before, after string // parts of the request; "" matches any request
	}{
		"an older model":   {"max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022", `"max_tokens":32000`, `"max_tokens":8192`},
		"a long history":   {"input length and `max_tokens` exceed context limit: 170000 + 32000 > 200000, decrease input length or `max_tokens` and try again", `"max_tokens":32000`, `"max_tokens":30000`},
		"too long a one":   {"input length and `max_tokens` exceed context limit: 199990 + 32000 > 200000", "", ""},
		"no temperature":   {"temperature: this model does not support sampling parameters", `"temperature":0.5`, `"stream":true`},
		"minutes alone":    {"system.0.cache_control.ttl: Extra inputs are not permitted", `"ttl":"1h"`, `"cache_control":{"type":"ephemeral"}`},
		"no cache":         {"tools.0.cache_control: Extra inputs are not permitted", `"cache_control"`, `"stream":true`},
		"a wrong thought":  {"messages.1.content.0: Invalid `signature` in `thinking` block", `"thinking"`, `"tool_use"`},
		"never satisfied":  {"temperature, cache_control, and thinking: no", "", ""},
		"less than before": {"max_tokens: 32000 > 64000, says a liar", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			refuse, err := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": "invalid_request_error", "message": c.refusal}})
			if err != nil {
				t.Fatal(err)
			}

			no := modeltest.Turn{Status: 400, Raw: string(refuse)}
			s := modeltest.New(t, thought, no, modeltest.Turn{Text: "Done."})
			if c.before == "" {
				s = modeltest.New(t, thought, no)
			}

			p := provider(t, s.URL, modeltest.Limits{})
			warm := 0.5
			r := question
			first := modeltest.Ask(t, t.Context(), p, r)
			r.Temperature, r.KeepAll = &warm, name == "minutes alone"
			r.Messages = append(slices.Clip(r.Messages), model.Message{Role: model.RoleAssistant, Text: first.Text, Calls: first.Calls, Raw: first.Raw},
				model.Message{Role: model.RoleTool, CallID: "a", Name: "notify", Text: `{"ok":true}`})
			got := modeltest.Ask(t, t.Context(), p, r)
			sent := s.Requests()[1:]
			if c.before == "" {
				if got.Err == nil || len(sent) > 4 {
					t.Errorf("%d requests: %v", len(sent), got.Err)
				}
				return
			}

			if name == "a wrong thought" { // the strict server rejects its absence, unlike a real one
				if len(sent) != 2 || strings.Contains(string(sent[1]), c.before) || !strings.Contains(string(sent[1]), c.after) {
					t.Errorf("%d requests: %s", len(sent), sent)
				}
				return
			}

			if got.Err != nil || got.Text != "Done." || len(sent) != 2 || !strings.Contains(string(sent[0]), c.before) || strings.Contains(string(sent[1]), c.before) || !strings.Contains(string(sent[1]), c.after) {
				t.Errorf("%+v after\n%s", got, sent)
			}
		})
	}
}
