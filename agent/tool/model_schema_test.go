package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"rouse/agent/tool"
	"rouse/internal/domain"
)

// TestModelSchema checks the subset of a schema that is sent to a model, and that a call that
// matches the subset is valid for the full schema.
func TestModelSchema(t *testing.T) {
	t.Parallel()
	deep := `{"type":"string"}`
	for range 12 {
		deep = `{"type":"object","properties":{"a":` + deep + `}}`
	}
	for name, c := range map[string]struct{ full, sent, call, got string }{
		"nothing":        {`{"type":"object"}`, `{"type":"object","properties":{}}`, `{}`, `{}`},
		"closed":         {`{"type":"object","additionalProperties":false}`, `{"type":"object","properties":{}}`, ``, `{}`},
		"true":           {`{"type":"object","properties":{"x":true}}`, `{"type":"object","properties":{"x":{"type":"string","description":"(unless it is text: as JSON)"}}}`, `{"x":"[1,2]"}`, `{"x":[1,2]}`},
		"false":          {`{"type":"object","properties":{"x":false,"y":{"type":"boolean"}}}`, `{"type":"object","properties":{"y":{"type":"boolean"}}}`, `{"y":"true"}`, `{"y":true}`},
		"no type":        {`{"type":"object","properties":{"x":{"description":"anything"}}}`, `{"type":"object","properties":{"x":{"type":"string","description":"anything (unless it is text: as JSON)"}}}`, `{"x":"5"}`, `{"x":"5"}`},
		"types":          {`{"type":"object","properties":{"x":{"type":["integer","boolean"]}}}`, `{"type":"object","properties":{"x":{"type":"string","description":"(a number, true or false)"}}}`, `{"x":"5"}`, `{"x":5}`},
		"text or number": {`{"type":"object","properties":{"x":{"anyOf":[{"type":"number"},{"type":"string"}]}}}`, `{"type":"object","properties":{"x":{"type":"string"}}}`, `{"x":"5"}`, `{"x":"5"}`},
		"no text":        {`{"type":"object","properties":{"x":{"oneOf":[{"type":"number"},{"type":"boolean"}]}}}`, `{"type":"object","properties":{"x":{"type":"string","description":"(a number, true or false)"}}}`, `{"x":"true"}`, `{"x":true}`},
		"one or several": {`{"type":"object","properties":{"x":{"description":"d","anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]}}}`, `{"type":"object","properties":{"x":{"type":"array","description":"d","items":{"type":"string"}}}}`, `{"x":["a"]}`, `{"x":["a"]}`},
		"null":           {`{"type":"object","properties":{"x":{"type":["string","null"]},"y":{"anyOf":[{"type":"null"},{"type":"integer"}]}},"required":["x","y"]}`, `{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"integer"}}}`, `{}`, `{"x":null,"y":null}`},
		"null given":     {`{"type":"object","properties":{"x":{"type":["string","null"]}},"required":["x"]}`, `{"type":"object","properties":{"x":{"type":"string"}}}`, `{"x":null}`, `{"x":null}`},
		"numbers":        {`{"type":"object","properties":{"x":{"enum":[1,2]}}}`, `{"type":"object","properties":{"x":{"type":"string","description":"(unless it is text: as JSON; one of 1, 2)"}}}`, `{"x":"2"}`, `{"x":2}`},
		"words":          {`{"type":"object","properties":{"x":{"const":"a"},"y":{"type":"string","enum":["","b"]}}}`, `{"type":"object","properties":{"x":{"type":"string","enum":["a"]},"y":{"type":"string","enum":["b"]}}}`, `{"x":"a","y":""}`, `{"x":"a"}`},
		"bounds":         {`{"type":"object","properties":{"x":{"type":"integer","minimum":1,"maximum":9,"default":3},"y":{"type":"string","format":"date","pattern":"^2"}}}`, `{"type":"object","properties":{"x":{"type":"integer","description":"(at least 1; at most 9; default 3)"},"y":{"type":"string","description":"(format date; matches ^2)"}}}`, `{"x":"4"}`, `{"x":4}`},
		"map":            {`{"type":"object","properties":{"x":{"type":"object","additionalProperties":{"type":"string"}}}}`, `{"type":"object","properties":{"x":{"type":"object","description":"(any names; each value is of type string)"}}}`, `{"x":{"a":"1"}}`, `{"x":{"a":"1"}}`},
		"array":          {`{"type":"object","properties":{"x":{"type":"array"},"y":{"type":"array","items":true,"minItems":1}}}`, `{"type":"object","properties":{"x":{"type":"array","items":{"type":"string","description":"(unless it is text: as JSON)"}},"y":{"type":"array","description":"(at least 1)","items":{"type":"string","description":"(unless it is text: as JSON)"}}}}`, `{"y":["{\"a\":1}"]}`, `{"y":[{"a":1}]}`},
		"objects": {`{"type":"object","properties":{"x":{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"n":{"type":"integer"}},"required":["kind","n"]},{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]}]}}}`,
			`{"type":"object","properties":{"x":{"type":"object","properties":{"kind":{"type":"string","enum":["a","b"]},"n":{"type":"integer"}},"required":["kind"]}}}`, `{"x":{"kind":"a","n":1}}`, `{"x":{"kind":"a","n":1}}`},
		"either": {`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, `{"b":"x"}`, `{"b":"x"}`},
		"all":    {`{"type":"object","allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"number"}}}]}`, `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a"]}`, `{"a":"x"}`, `{"a":"x"}`},
		"deep":   {deep, `{"type":"object","properties":{"a":{"type":"object","properties":{"a":{"type":"object","properties":{"a":{"type":"object","properties":{"a":{"type":"object","properties":{"a":{"type":"object","properties":{"a":{"type":"object"}}}}}}}}}}}}}`, `{}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			one, err := tool.DefineBySchema(tool.Spec{Name: "t", Description: "d", Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun, Writes: tool.WritesNothing, Schema: json.RawMessage(c.full)},
				func(_ context.Context, _ tool.Invocation, args json.RawMessage) (tool.Envelope, error) {
					got = string(args)
					return tool.Success(nil), nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if sent := string(one.ModelSchema()); sent != c.sent {
				t.Errorf("sent\n%s, want\n%s", sent, c.sent)
			}
			r, err := tool.NewRegistry(one)
			if err != nil {
				t.Fatal(err)
			}
			if e, err := r.Call(t.Context(), tool.Invocation{}, "t", json.RawMessage(c.call)); err != nil || !e.OK || got != c.got {
				t.Errorf("a call with %s: %+v, %v, with %s, want %s", c.call, e, err, got, c.got)
			}
		})
	}
}

// TestModelSchemaIsBounded checks that deeply nested choices do not take exponential time.
func TestModelSchemaIsBounded(t *testing.T) {
	t.Parallel()
	schema := `{"type":"string"}`
	for range 6 {
		schema = `{"type":"object","properties":{"a":` + schema + `},"anyOf":[` + strings.Repeat(`{},`, 900) + `{}]}`
	}
	if _, err := tool.DefineBySchema(tool.Spec{Name: "t", Description: "d", Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun, Writes: tool.WritesNothing, Schema: json.RawMessage(schema)},
		func(context.Context, tool.Invocation, json.RawMessage) (tool.Envelope, error) {
			return tool.Success(nil), nil
		}); err != nil {
		t.Error(err)
	}
}
