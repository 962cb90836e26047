package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/control"
	"rouse/internal/contract"
)

// TestClarifyArguments: OSA-18, options are trimmed and deduplicated before they are counted.
func TestClarifyArguments(t *testing.T) {
	clarify, err := control.Clarify()
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(clarify)
	if err != nil {
		t.Fatal(err)
	}

	row := contract.Of(t, "OSA-18")
	most, longest := row.Number("6"), row.Number("80")
	long := strings.Repeat("ä", longest+1)
	whole := fmt.Sprintf(`{%q:"q",%q:["%s"],%q:false}`, row.Quote("question"), row.Quote("options"), strings.Repeat("ä", longest), row.Quote("allowMultiple"))
	many := "1"
	for i := 2; i <= most; i++ {
		many += fmt.Sprintf(`","%d`, i)
	}
	for args, want := range map[string]string{
		whole: `{"question":"q","options":["` + strings.Repeat("ä", longest) + `"],"waiting":true}`,
		`{"question":"q","options":["` + many + `"]}`:                    `{"question":"q","options":["` + many + `"],"waiting":true}`,
		`{"question":"q","options":["` + many + `","more"]}`:             "options",
		`{"question":" which? "}`:                                        `{"question":"which?","waiting":true}`,
		`{"question":"q","options":[" a ","A","","b"]}`:                  `{"question":"q","options":["a","b"],"waiting":true}`,
		`{"question":"q","options":["a","b"],"allowMultiple":true}`:      `{"question":"q","options":["a","b"],"allow_multiple":true,"waiting":true}`,
		`{"question":"q","options":["",""],"allowMultiple":true}`:        `{"question":"q","waiting":true}`,
		`{"question":"q","options":["1","2","3","4","5","6","6"," 6 "]}`: `{"question":"q","options":["1","2","3","4","5","6"],"waiting":true}`,
		`{"question":"q","options":["1","2","3","4","5","6","7"]}`:       "options",
		`{"question":"q","options":["` + long + `"]}`:                    "options",
		`{"question":"  "}`: "question",
		`{"question":"` + strings.Repeat("x", 2001) + `"}`: "question",
		`{}`: "question",
		`{"question":"q","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}`: `{"question":"q","input_schema":{"properties":{"n":{"type":"integer"}},"type":"object"},"waiting":true}`,
		`{"question":"q","inputSchema":{"properties":{"n":{"$ref":"#"}}}}`:                       "inputSchema",
		`{"question":"q","inputSchema":{"type":"object"},"options":["a"]}`:                       "inputSchema",
	} {
		e, err := r.Call(t.Context(), tool.Invocation{}, row.Quote("clarify"), json.RawMessage(args))
		if err != nil {
			t.Fatal(err)
		}

		got := string(e.Result)
		if !e.OK {
			if got = e.Field; string(e.Kind) != row.Quote("invalid_args") {
				t.Errorf("%.60s: kind %s", args, e.Kind)
			}
		}
		if got != want {
			t.Errorf("%.60s: %s, want %s", args, got, want)
		}
	}
}
