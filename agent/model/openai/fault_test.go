package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
)

// stream returns a turn that sends the given chunks.
func stream(chunks ...string) modeltest.Turn {
	return modeltest.Turn{Raw: "data: " + strings.Join(chunks, "\n\ndata: ") + "\n\n"}
}

func body(contentType, raw string) modeltest.Turn {
	return modeltest.Turn{Header: map[string]string{"Content-Type": contentType}, Raw: raw}
}

func status(code int, raw string) modeltest.Turn {
	return modeltest.Turn{Status: code, Header: map[string]string{"Content-Type": "application/json", "Retry-After": "0"}, Raw: raw}
}

const (
	begun = `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"db_query","arguments":"{\"sql\":"}}]}}]}`
	ended = `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"select 1\"}"}}]}}]}`
)

func finish(reason string) string {
	return `{"choices":[{"delta":{},"finish_reason":"` + reason + `"}]}`
}

// TestFaults checks that each fault of a server becomes an error with a reason. Incomplete calls
// must not be made, and messages must not contain the key.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		turn      modeltest.Turn
		kind      model.ErrorKind
		retryable bool
		say       string
	}{
		"wrong key":         {status(401, `{"error":{"message":"Incorrect API key provided: `+key+`","code":"invalid_api_key"}}`), model.KindAuth, false, "provided: [secret]; check api_key"},
		"a key in hex":      {status(401, fmt.Sprintf(`{"error":{"message":"no such key: %x"}}`, key)), model.KindAuth, false, "no such key: [secret]"},
		"key in a header":   {status(403, `canary-in-a-header is not allowed`), model.KindAuth, false, "[secret] is not allowed"},
		"nothing paid":      {status(402, `{"error":{"message":"insufficient credits","code":402}}`), model.KindQuota, false, "insufficient credits"},
		"no such model":     {status(404, `{"error":"model not found"}`), model.KindBadRequest, false, "/v1 answered 404 Not Found for the model scripted: model not found; check base_url and the name of the model"},
		"redirect":          {modeltest.Turn{Status: 301, Header: map[string]string{"Location": "https://elsewhere/v1"}}, model.KindBadRequest, false, "redirects to https://elsewhere/v1"},
		"bad field":         {status(422, `{"detail":[{"loc":["body","tools"],"msg":"no tools"}]}`), model.KindBadRequest, false, "no tools"},
		"too long, OpenAI":  {status(400, `{"error":{"message":"Please shorten it.","code":"context_length_exceeded"}}`), model.KindContextOverflow, false, "Please shorten it."},
		"too long, llama":   {status(500, `{"error":{"code":500,"message":"the request exceeds the available context size"}}`), model.KindContextOverflow, false, "context size"},
		"too long, Gemini":  {status(400, `[{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}]`), model.KindContextOverflow, false, "input token count"},
		"limited":           {modeltest.Turn{Status: 429, Header: map[string]string{"Retry-After": "3600"}, Raw: `slow down`}, model.KindRateLimited, true, "slow down"},
		"no quota":          {status(429, `{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}`), model.KindQuota, false, "quota"},
		"down":              {status(502, "<html><head><title>502 Bad\nGateway</title></head></html>"), model.KindUnavailable, true, `502 Bad Gateway for the model scripted: a web page titled "502 Bad`},
		"not implemented":   {status(501, ``), model.KindBadRequest, false, "no explanation"},
		"a web page":        {body("text/html", "<html>login</html>"), model.KindInvalidResponse, false, "text/html instead of a stream: a web page; check base_url"},
		"text":              {body("text/plain", "It works!"), model.KindInvalidResponse, false, "text/plain instead of a stream: It works!"},
		"error in a 200":    {body("application/json", `{"error":{"message":"overloaded","code":503}}`), model.KindUnavailable, true, "overloaded"},
		"refusal in a 200":  {body("application/json", `{"error":{"message":"no tools here","type":"invalid_request_error"}}`), model.KindBadRequest, false, "no tools here"},
		"list in a 200":     {body("application/json", `[{"error":{"message":"bad key","code":401}}]`), model.KindAuth, false, "bad key"},
		"limit in a 200":    {body("application/json", `{"error":{"message":"busy","type":"rate_limit_error"}}`), model.KindRateLimited, true, "busy"},
		"no choice":         {body("application/json", `{"choices":[]}`), model.KindInvalidResponse, true, "without a choice"},
		"half JSON":         {body("application/json", `{"choices":[{"message":{"tool_calls":[{"id":"a"`), model.KindInvalidResponse, true, "cannot be read"},
		"nothing":           {body("text/event-stream", " \n\n"), model.KindTruncated, true, "broke off"},
		"fails midway":      {stream(begun, `{"error":{"message":"overloaded `+key+`","code":"server_error"}}`), model.KindUnavailable, true, "overloaded [secret]"},
		"event of an error": {modeltest.Turn{Raw: "event: error\ndata: {\"message\":\"out of memory\"}\n\n"}, model.KindUnavailable, true, "out of memory"},
		"too long midway":   {stream(`{"error":{"message":"context length exceeded","code":400}}`), model.KindContextOverflow, false, "context length"},
		"not JSON":          {stream(begun, "{broken"), model.KindInvalidResponse, true, "cannot be read"},
		"cut off":           {stream(begun), model.KindTruncated, true, "before it was complete"},
		"cut off but whole": {stream(begun, ended), model.KindTruncated, true, "before it was complete"},
		"DONE without end":  {stream(begun, ended, "[DONE]"), model.KindTruncated, true, "before it was complete"},
		"broken arguments":  {stream(begun, finish("tool_calls"), "[DONE]"), model.KindInvalidResponse, true, "called db_query with arguments that are not a JSON object"},
		"no object":         {stream(strings.Replace(begun, `{\"sql\":`, `[1]`, 1), finish("stop")), model.KindInvalidResponse, true, "not a JSON object"},
		"no name":           {stream(ended, finish("stop")), model.KindInvalidResponse, true, "without a name"},
		"too long inside":   {stream(begun, ended, finish("length"), "[DONE]"), model.KindTruncated, false, "raise max_output"},
		"filtered":          {stream(begun, ended, finish("content_filter")), model.KindBadRequest, false, "withheld"},
		"gave up":           {stream(begun, ended, finish("error")), model.KindUnavailable, true, "gave up"},
		"strange end":       {stream(begun, ended, finish("banana")), model.KindTruncated, true, "banana"},
		"endless":           {stream(strings.Repeat(`{"choices":[{"delta":{"content":"`+strings.Repeat("a", 1<<20)+`"}}]}`+"\n\ndata: ", 17)), model.KindInvalidResponse, false, "longer than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn).URL, question)
			var e *model.Error
			if !errors.As(got.Err, &e) || e.Kind != c.kind || e.Retryable != c.retryable || !strings.Contains(e.Error(), c.say) {
				t.Errorf("%+v\nwant %s (%v) that says %q", got.Err, c.kind, c.retryable, c.say)
			}
			if len(got.Calls) != 0 {
				t.Errorf("a call got through: %+v", got.Calls)
			}
			if got.Err != nil && strings.Contains(got.Err.Error(), "canary") {
				t.Errorf("a key is in the message: %v", got.Err)
			}
		})
	}
}

// TestEndlessAnswers checks that an answer beyond its limit is not read to the end, for text, calls
// and reasoning.
func TestEndlessAnswers(t *testing.T) {
	endless := func(first, chunk string) modeltest.Turn {
		chunks := make([]string, 0, 1001)
		chunks = append(chunks, first)
		for range 1000 {
			chunks = append(chunks, chunk)
		}
		return stream(append(chunks, finish("stop"), "[DONE]")...)
	}
	r := question
	r.MaxOutput = 20
	for name, c := range map[string]struct {
		turn modeltest.Turn
		most int // bytes of the text
	}{
		"text":      {endless(finish(""), `{"choices":[{"delta":{"content":"blah "}}]}`), 125},
		"reasoning": {endless(finish(""), `{"choices":[{"delta":{"reasoning_content":"hm "}}]}`), 0},
		"a call":    {endless(begun, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"blah "}}]}}]}`), 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn).URL, r)
			var e *model.Error
			switch {
			case len(got.Text) > c.most || len(got.Calls) > 0:
				t.Errorf("%d bytes, %d calls", len(got.Text), len(got.Calls))
			case name == "a call" && (!errors.As(got.Err, &e) || e.Kind != model.KindTruncated || e.Feedback == "" || !strings.Contains(e.Message, "max_output is 20 tokens")):
				t.Errorf("%v", got.Err)
			case name != "a call" && (got.Err != nil || got.Stop != model.StopLength):
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestRetryAfterIsReported(t *testing.T) {
	at := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	s := modeltest.New(t, modeltest.Turn{Status: 429, Header: map[string]string{"Retry-After": at}})
	var e *model.Error
	if got := ask(t, s.URL, question); !errors.As(got.Err, &e) || e.RetryAfter < 59*time.Minute || e.RetryAfter > time.Hour {
		t.Errorf("%+v", got.Err)
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("the server was asked %d times although it wants an hour", n)
	}
}

// TestQuirks checks unusual but valid answers of servers.
func TestQuirks(t *testing.T) {
	whole := func(message, finish string) modeltest.Turn {
		return body("application/json", `{"choices":[{"finish_reason":"`+finish+`","message":`+message+`}],"usage":{"prompt_tokens":4,"completion_tokens":2}}`)
	}
	calls := func(fragments ...string) modeltest.Turn {
		var chunks []string
		for _, f := range fragments {
			chunks = append(chunks, `{"choices":[{"delta":{"tool_calls":[`+f+`]}}]}`)
		}
		return stream(append(chunks, finish("tool_calls"), "[DONE]")...)
	}
	for name, c := range map[string]struct {
		turn  modeltest.Turn
		text  string
		stop  string
		calls string // name(arguments) name(arguments)
	}{
		"does not stream": {whole(`{"content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{\"a\":1}"}}]}`, "tool_calls"), "hm", "tool_calls", `x({"a":1})`},
		"calls without ids": {whole(`{"tool_calls":[{"function":{"name":"x","arguments":{"a":1}}},{"function":{"name":"x","arguments":{"a":2}}}]}`, "stop"),
			"", "tool_calls", `x({"a":1}) x({"a":2})`},
		"wrong content type":   {modeltest.Turn{Header: map[string]string{"Content-Type": "text/plain"}, Raw: "\uFEFF\n: hello\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\r\n\r\n"}, "a", "stop", ""},
		"no DONE":              {stream(begun, ended, finish("tool_calls")), "", "tool_calls", `db_query({"sql":"select 1"})`},
		"stop with calls":      {stream(begun, ended, finish("stop"), "[DONE]"), "", "tool_calls", `db_query({"sql":"select 1"})`},
		"error: null":          {stream(`{"error":null,"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, "[DONE]"), "a", "stop", ""},
		"parts":                {stream(`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":"?"},{"type":"text","text":"a"}]}}]}`, finish("end_turn")), "a", "stop", ""},
		"reasoning":            {stream(`{"choices":[{"delta":{"reasoning_content":"let me"}}]}`, `{"choices":[{"delta":{"content":"a"}}]}`, finish("stop")), "a", "stop", ""},
		"refusal":              {stream(`{"choices":[{"delta":{"refusal":"I will not."}}]}`, finish("stop")), "I will not.", model.StopRefusal, ""},
		"length of a text":     {stream(`{"choices":[{"delta":{"content":"a"}}]}`, finish("max_tokens")), "a", model.StopLength, ""},
		"filter":               {stream(finish("content_filter")), "", model.StopFilter, ""},
		"another choice":       {stream(`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"},{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`), "a", "stop", ""},
		"no arguments":         {calls(`{"index":0,"id":"a","function":{"name":"x"}}`), "", "tool_calls", `x({})`},
		"null arguments":       {calls(`{"index":0,"id":"a","function":{"name":"x","arguments":null}}`), "", "tool_calls", `x({})`},
		"arguments twice JSON": {calls(`{"index":0,"id":"a","function":{"name":"x","arguments":"\"{\\\"a\\\":1}\""}}`), "", "tool_calls", `x({"a":1})`},
		"the same index":       {calls(`{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}`, `{"index":0,"id":"b","function":{"name":"y","arguments":"{}"}}`), "", "tool_calls", `x({}) y({})`},
		"no index":             {calls(`{"id":"a","function":{"name":"x","arguments":"{"}},{"id":"b","function":{"name":"y","arguments":"{"}}`, `{"id":"a","function":{"arguments":"}"}}`, `{"id":"b","function":{"arguments":"}"}}`), "", "tool_calls", `x({}) y({})`},
		"no index, no id":      {calls(`{"function":{"name":"x","arguments":"{"}}`, `{"function":{"arguments":"}"}}`, `{"function":{"name":"x","arguments":"{}"}}`), "", "tool_calls", `x({}) x({})`},
		"a name in each":       {calls(`{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}`, `{"index":0,"id":"a","function":{"name":"x","arguments":"}"}}`), "", "tool_calls", `x({})`},
		"a name in pieces":     {calls(`{"index":0,"id":"a","function":{"name":"db_"}}`, `{"index":0,"function":{"name":"query","arguments":"{}"}}`), "", "tool_calls", `db_query({})`},
		"mixed fragments":      {calls(`{"index":1,"id":"b","function":{"name":"y","arguments":"{"}},{"index":0,"id":"a","function":{"name":"x","arguments":"{"}}`, `{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"}"}}`), "", "tool_calls", `y({}) x({})`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, modeltest.New(t, c.turn).URL, question)
			var calls []string
			ids := map[string]bool{}
			for _, call := range got.Calls {
				calls = append(calls, call.Name+"("+string(call.Args)+")")
				ids[call.ID] = true
				if !json.Valid(call.Args) || call.ID == "" {
					t.Errorf("call: %+v", call)
				}
			}
			if made := strings.Join(calls, " "); got.Err != nil || got.Text != c.text || got.Stop != c.stop || made != c.calls || len(ids) != len(calls) {
				t.Errorf("%+v with %s\nwant %q, stop %q, calls %s", got, made, c.text, c.stop, c.calls)
			}
		})
	}
}

// refuses answers every request with an error, after passing its body to the function.
type refuses func(body string)

func (r refuses) RoundTrip(req *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r(string(text))
	return &http.Response{StatusCode: http.StatusBadRequest, Status: "400 Bad Request", Header: http.Header{}, Body: http.NoBody}, nil
}
