package textcall_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rouse/agent/loop/textcall"
)

// tools returns the schemas of file_read and db_query.
func tools(name string) (json.RawMessage, bool) {
	switch name {
	case "file_read":
		return json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"start_line":{"type":"integer"},"all":{"type":"boolean"}}}`), true
	case "db_query":
		return json.RawMessage(`{"type":"object","properties":{"sql":{"type":"string"},"params":{"type":"array"}}}`), true
	}
	return nil, false
}

const readA = `file_read {"path":"a.txt"}`

// TestCalls checks that each known form is parsed if the whole answer consists of it.
func TestCalls(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   string // calls, one per line
	}{
		"hermes":                     {"<tool_call>\n{\"name\": \"file_read\", \"arguments\": {\"path\": \"a.txt\"}}\n</tool_call>", readA},
		"hermes, two":                {`<tool_call>{"name":"file_read","arguments":{"path":"a.txt"}}</tool_call>` + "\n" + `<tool_call>{"name":"db_query","arguments":{"sql":"select 1"}}</tool_call>`, readA + "\n" + `db_query {"sql":"select 1"}`},
		"hermes, two in one":         {"<tool_call>\n" + `{"name":"file_read","arguments":{"path":"a.txt"}}` + "\n" + `{"name":"file_read","arguments":{"path":"a.txt"}}` + "\n</tool_call>", readA + "\n" + readA},
		"hermes without its end":     {`<tool_call>{"name":"file_read","arguments":{"path":"a.txt"}}`, readA},
		"hermes, parameters":         {`<tool_call>{"name":"file_read","parameters":{"path":"a.txt"}}</tool_call>`, readA},
		"arguments as a string":      {`<tool_call>{"name":"file_read","arguments":"{\"path\":\"a.txt\"}"}</tool_call>`, readA},
		"no arguments":               {`<tool_call>{"name":"file_read","arguments":null}</tool_call>`, "file_read {}"},
		"behind thinking":            {"<think>\nI have to read it: <tool_call>\n</think>\n\n" + `<tool_call>{"name":"file_read","arguments":{"path":"a.txt"}}</tool_call>`, readA},
		"behind the end of thinking": {"I have to read it.\n</think>\n" + `<tool_call>{"name":"file_read","arguments":{"path":"a.txt"}}</tool_call>`, readA},
		"with a token at the end":    {`<tool_call>{"name":"file_read","arguments":{"path":"a.txt"}}</tool_call><|im_end|>`, readA},
		"granite":                    {`<|tool_call|>[{"name":"file_read","arguments":{"path":"a.txt"}}]`, readA},
		"glm":                        {"<tool_call>file_read\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n<arg_key>start_line</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", `file_read {"path":"a.txt","start_line":3}`},
		"fenced json":                {"```json\n{\n  \"name\": \"file_read\",\n  \"arguments\": {\"path\": \"a.txt\"}\n}\n```", readA},
		"fenced, a list":             {"```json\n" + `[{"name":"file_read","arguments":{"path":"a.txt"}}]` + "\n```", readA},
		"fenced, no language":        {"```\n" + `{"name":"file_read","arguments":{"path":"a.txt"}}` + "\n```", readA},
		"fenced, two":                {"```json\n" + `{"name":"file_read","arguments":{"path":"a.txt"}}` + "\n```\n```json\n" + `{"name":"file_read","arguments":{"path":"a.txt"}}` + "\n```", readA + "\n" + readA},
		"bare json":                  {`{"name": "file_read", "parameters": {"path": "a.txt"}}`, readA},
		"json of an api":             {`{"tool_calls":[{"id":"1","type":"function","function":{"name":"file_read","arguments":"{\"path\":\"a.txt\"}"}}]}`, readA},
		"function with json":         {`<function=file_read>{"path": "a.txt"}</function>`, readA},
		"function with parameters":   {"<tool_call>\n<function=file_read>\n<parameter=path>\na.txt\n</parameter>\n<parameter=start_line>\n3\n</parameter>\n<parameter=all>\nTrue\n</parameter>\n</function>\n</tool_call>", `file_read {"all":true,"path":"a.txt","start_line":3}`},
		"function, half a marker":    {"<function=file_read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>", readA},
		"a parameter of lines":       {"<function=db_query>\n<parameter=sql>\nselect 1\n  from t\n</parameter>\n<parameter=params>\n[1, \"b\"]\n</parameter>\n</function>", `db_query {"params":[1,"b"],"sql":"select 1\n  from t"}`},
		"a number that is a text":    {"<function=file_read><parameter=path>12</parameter></function>", `file_read {"path":"12"}`},
		"mistral":                    {`[TOOL_CALLS][{"name": "file_read", "arguments": {"path": "a.txt"}}]`, readA},
		"mistral, blank and end":     {`[TOOL_CALLS] [{"name": "file_read", "arguments": {"path": "a.txt"}, "id": "9"}]</s>`, readA},
		"mistral of 2025":            {`[TOOL_CALLS]file_read[ARGS]{"path": "a.txt"}`, readA},
		"mistral of 2025, two":       {`[TOOL_CALLS]file_read[CALL_ID]x1[ARGS]{"path": "a.txt"}[TOOL_CALLS]file_read{"path": "a.txt"}`, readA + "\n" + readA},
		"deepseek v3":                {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>file_read\n```json\n{\"path\": \"a.txt\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", readA},
		"deepseek v3.1":              {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>file_read<｜tool▁sep｜>{\"path\": \"a.txt\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>", readA},
		"deepseek without its end":   {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>file_read<｜tool▁sep｜>{\"path\": \"a.txt\"}", readA},
		"kimi":                       {`<|tool_calls_section_begin|><|tool_call_begin|>functions.file_read:0<|tool_call_argument_begin|>{"path":"a.txt"}<|tool_call_end|><|tool_calls_section_end|>`, readA},
		"gpt-oss":                    {`<|channel|>analysis<|message|>I read it.<|end|><|start|>assistant<|channel|>commentary to=functions.file_read <|constrain|>json<|message|>{"path":"a.txt"}<|call|>`, readA},
		"gemma, code":                {"```tool_code\nfile_read(path='a.txt', start_line=3, all=True)\n```", `file_read {"all":true,"path":"a.txt","start_line":3}`},
		"gemma, printed":             {"```tool_code\nprint(default_api.file_read(path=\"it's\\n\\\"a\\\"\"))\n```", `file_read {"path":"it's\n\"a\""}`},
		"gemma, tokens":              {"<start_function_call>call:db_query{sql:<escape>select '{' <escape>,params:[1,{a:<escape>b<escape>}]}<end_function_call>", `db_query {"params":[1,{"a":"b"}],"sql":"select '{' "}`},
		"gemma, quotes":              {`<|tool_call>call:file_read{path:<|"|>a.txt<|"|>}<tool_call|>`, readA},
		"llama":                      {`<|python_tag|>{"name": "file_read", "parameters": {"path": "a.txt"}}<|eom_id|>`, readA},
		"llama, two":                 {`<|python_tag|>{"name":"file_read","parameters":{"path":"a.txt"}}; {"name":"file_read","parameters":{"path":"a.txt"}}`, readA + "\n" + readA},
		"llama, a method":            {`<|python_tag|>db_query.call(sql="select 1", params=[])`, `db_query {"params":[],"sql":"select 1"}`},
		"llama, a list":              {`[file_read(path="a.txt"), db_query(sql='x', params=[-1.5, None, {'k': (')}])]`, ""},
		"llama, a list of two":       {`[file_read(path="a.txt"), db_query(sql='x', params=[-1.5, None, {'k': ')'}])]`, readA + "\n" + `db_query {"params":[-1.5,null,{"k":")"}],"sql":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := textcall.Read(c.answer, tools)
			var got []string
			for _, one := range a.Calls {
				var args any
				if err := json.Unmarshal(one.Args, &args); err != nil {
					t.Fatal(err)
				}
				text, _ := json.Marshal(args)
				got = append(got, one.Name+" "+string(text))
				if !strings.Contains(strings.NewReplacer("｜", "|", "▁", "_").Replace(c.answer), one.Source) {
					t.Errorf("source %q", one.Source)
				}
			}
			if strings.Join(got, "\n") != c.want || a.Fault != "" {
				t.Errorf("read %q (%q), want %q", got, a.Fault, c.want)
			}
		})
	}
}

// TestTexts checks that an answer that is neither a call nor a failed call stays a text.
func TestTexts(t *testing.T) {
	const call = `{"name":"file_read","arguments":{"path":"a.txt"}}`
	for name, answer := range map[string]string{
		"prose":                     "All files were read.",
		"nothing":                   "",
		"prose around a fence":      "A call looks like this:\n\n```json\n" + call + "\n```\n\nIt reads a file.",
		"a marker inside of a line": "Models write `<tool_call>" + call + "</tool_call>`.",
		"a marker in a fence":       "Hermes:\n```\n<tool_call>" + call + "</tool_call>\n```\nThat is all.",
		"prose behind a call":       "<tool_call>" + call + "</tool_call>\n\nThis is how Hermes models write a call.",
		"prose behind json":         call + "\n\nis a call.",
		"a marker as a subject":     "[TOOL_CALLS] is a token of Mistral.",
		"tags as a subject":         "<tool_call> and </tool_call> are tags.",
		"json of another shape":     `{"name":"file_read","arguments":{"path":"a.txt"},"comment":"x"}`,
		"json of data":              "```json\n[{\"name\":\"Ann\",\"age\":3}]\n```",
		"a list of nothing":         "[]",
		"code":                      "```python\nfile_read(path='a.txt')\n```",
		"a link":                    "[file_read](https://example.org)",
		"a fence of a shell":        "```sh\nls\n```",
		"thinking and prose":        "<think>Is <tool_call> needed?</think>Nothing to do.",
		"a tag about thinking":      "Use `<think>` and\n`</think>` for it.",
		"numbers":                   "[1, 2, 3]",
	} {
		t.Run(name, func(t *testing.T) {
			if a := textcall.Read(answer, tools); len(a.Calls) > 0 || a.Fault != "" {
				t.Errorf("%+v", a)
			}
		})
	}
}

// TestFaults checks that an answer meant as a call is a fault if it cannot be parsed without
// guessing.
func TestFaults(t *testing.T) {
	const call = `{"name":"file_read","arguments":{"path":"a.txt"}}`
	for name, c := range map[string]struct {
		answer, why string
		quotes      bool
	}{
		"an unknown tool":           {`<tool_call>{"name":"raed","arguments":{}}</tool_call>`, `no tool "raed"`, false},
		"an unknown tool in json":   {`{"name":"raed","arguments":{}}`, `no tool "raed"`, false},
		"arguments that are a list": {`<tool_call>{"name":"file_read","arguments":["a.txt"]}</tool_call>`, "arguments of file_read", false},
		"broken json":               {`<tool_call>{"name":"file_read","arguments":{"path":a.txt}}</tool_call>`, "cannot be read", false},
		"a call that is cut off":    {`<tool_call>{"name":"file_read","arguments":{"path":"a.t`, "cannot be read", false},
		"prose before a call":       {"I read it.\n<tool_call>" + call + "</tool_call>", "follows other text", false},
		"prose before mistral":      {"I read it.\n[TOOL_CALLS][" + call + "]", "follows other text", false},
		"prose before a fence":      {"I read it:\n```json\n" + call + "\n```", "ends in a call", true},
		"prose before json":         {"I read it:\n\n" + call, "ends in a call", true},
		"a parameter without end":   {"<function=file_read>\n<parameter=path>\na.txt\n</function>", "cannot be read", false},
		"an invoke tag":             {`<invoke name="file_read"><parameter name="path">a.txt</parameter></invoke>`, "cannot be read", false},
		"a call that is computed":   {"<|python_tag|>file_read(path=str(1))", "cannot be read", false},
		"thinking without an end":   {"<think>\nI have to read a.txt", "reasoning without an end", false},
		"a call within it":          {"<think>\nI read.\n<tool_call>" + call + "</tool_call>", "reasoning without an end", false},
	} {
		t.Run(name, func(t *testing.T) {
			if a := textcall.Read(c.answer, tools); len(a.Calls) > 0 || !strings.Contains(a.Fault, c.why) || a.Quotes != c.quotes {
				t.Errorf("%+v, want %q", a, c.why)
			}
		})
	}
}

// FuzzRead checks that Read accepts any text, and returns only calls of existing tools with JSON
// objects.
func FuzzRead(f *testing.F) {
	f.Add(`<tool_call>{"name":"file_read","arguments":{"path":"a.txt"}}</tool_call>`)
	f.Add("```tool_code\nprint(file_read(path='a', x=[1,{'a':None}]))\n```")
	f.Add("<function=file_read><parameter=path>a</parameter></function>")
	f.Add("<｜tool▁call▁begin｜>file_read<｜tool▁sep｜>{}<｜tool▁call▁end｜>")
	f.Add("<think>a</think>[file_read(path=\"\"\"a\\x41\"\"\")]" + strings.Repeat("[", 200))
	f.Fuzz(func(t *testing.T, answer string) {
		for _, c := range textcall.Read(answer, tools).Calls {
			var args map[string]json.RawMessage
			if _, known := tools(c.Name); !known || json.Unmarshal(c.Args, &args) != nil {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestSplit checks that the reasoning is not part of the text.
func TestSplit(t *testing.T) {
	for name, c := range map[string]struct{ answer, thinking, text string }{
		"none":         {"hello", "", "hello"},
		"some":         {" <think>\na\n</think>\n\nhello ", "<think>\na\n</think>", "hello"},
		"only its end": {"a\nb</think>\n\nhello", "a\nb</think>", "hello"},
		"nothing else": {"<think>a</think>\n", "<think>a</think>", ""},
		"magistral":    {"[THINK]a[/THINK]hello", "[THINK]a[/THINK]", "hello"},
		"gpt-oss":      {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>hello", "<|channel|>analysis<|message|>a<|end|><|start|>assistant", "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			if a := textcall.Split(c.answer); a.Thinking != c.thinking || a.Text != c.text || a.Fault != "" {
				t.Errorf("%+v", a)
			}
		})
	}
}

// TestLongAnswers checks that parsing takes linear time, even for many calls followed by prose.
func TestLongAnswers(t *testing.T) {
	for name, line := range map[string]string{"objects": `{"name":"file_read","arguments":{"path":"a"}}`, "markers": "<tool_call>{}", "open": "{"} {
		asked := 0
		known := func(name string) (json.RawMessage, bool) {
			asked++
			return tools(name)
		}
		const lines = 5000
		textcall.Read(strings.Repeat(line+"\n", lines)+"and that is it.", known)
		if asked > 3*lines {
			t.Errorf("%s: %d calls of %d lines were looked up", name, asked, lines)
		}
	}
}
