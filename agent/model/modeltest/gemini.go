package modeltest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/model"
)

// gemini implements Gemini's generateContent API.
type gemini struct{}

func (gemini) contentType() string { return "text/event-stream" }

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text         *string         `json:"text,omitempty"`
	Signature    string          `json:"thoughtSignature,omitempty"`
	FunctionCall *geminiCall     `json:"functionCall,omitempty"`
	Response     *geminiResponse `json:"functionResponse,omitempty"`
}

type geminiCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type geminiResponse struct {
	ID       string                     `json:"id,omitempty"`
	Name     string                     `json:"name"`
	Response map[string]json.RawMessage `json:"response"`
}

var geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

func (d gemini) validate(s *Server, _ *http.Request, body []byte) string {
	var in struct {
		Contents []geminiContent
		Tools    []struct {
			FunctionDeclarations []struct {
				Name, Description    string
				Parameters           json.RawMessage
				ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return "Invalid JSON payload received. " + err.Error()
	}
	if len(in.Contents) == 0 {
		return "* GenerateContentRequest.contents: contents is not specified"
	}

	for _, t := range in.Tools {
		for i, f := range t.FunctionDeclarations {
			at := fmt.Sprintf("tools[0].function_declarations[%d]", i)
			switch {
			case !geminiName.MatchString(f.Name):
				return at + ".name: Invalid function name."
			case f.Parameters != nil && f.ParametersJSONSchema != nil:
				return at + ": only one of parameters and parameters_json_schema may be set"
			case f.Parameters != nil:
				if problem := validateGeminiSchema(at+".parameters", f.Parameters); problem != "" {
					return problem
				}
			case f.ParametersJSONSchema != nil:
				if problem := toolProblem(at+".parameters_json_schema", f.Name, f.ParametersJSONSchema); problem != "" {
					return problem
				}
			}
		}
	}

	return d.validateTranscript(s, in.Contents)
}

// validateGeminiSchema checks the rules of the API's subset of the OpenAPI schema.
func validateGeminiSchema(at string, raw json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return at + ": is no schema"
	}

	known := strings.Fields("type description enum items properties required")
	for key := range fields {
		if !slices.Contains(known, key) {
			return fmt.Sprintf("Invalid JSON payload received. Unknown name %q at '%s': Cannot find field.", key, at)
		}
	}

	var s struct {
		Type       string
		Enum       []string
		Items      json.RawMessage
		Properties map[string]json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Sprintf("Invalid value at '%s': %v", at, err)
	}

	switch {
	case !slices.Contains(strings.Fields("STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT"), s.Type):
		return at + ".type: must be specified"
	case s.Type == "ARRAY" && s.Items == nil:
		return at + ".items: missing field."
	case s.Type == "OBJECT" && len(s.Properties) == 0:
		return at + ".properties: should be non-empty for OBJECT type"
	case s.Type != "OBJECT" && s.Properties != nil:
		return at + ".properties: only allowed for OBJECT type"
	case s.Type != "STRING" && s.Enum != nil:
		return at + ".enum: only allowed for STRING type"
	}

	for _, name := range s.Required {
		if s.Properties[name] == nil {
			return fmt.Sprintf("%s.required: property %q is not defined", at, name)
		}
	}

	for name, p := range s.Properties {
		if problem := validateGeminiSchema(at+".properties["+name+"]", p); problem != "" {
			return problem
		}
	}

	if s.Items != nil {
		return validateGeminiSchema(at+".items", s.Items)
	}

	return ""
}

// validateTranscript checks the order of roles, calls and results.
func (d gemini) validateTranscript(s *Server, contents []geminiContent) string {
	var open []geminiCall // calls of the previous content
	for i, c := range contents {
		if (c.Role != "user" && c.Role != "model") || len(c.Parts) == 0 {
			return fmt.Sprintf("contents[%d]: Please use a valid role: user, model, and at least one part.", i)
		}

		var calls []model.Call
		var made []geminiCall
		answers := 0
		for _, p := range c.Parts {
			switch {
			case p.FunctionCall != nil:
				made = append(made, *p.FunctionCall)
				calls = append(calls, model.Call{Name: p.FunctionCall.Name, Args: p.FunctionCall.Args})
			case p.Response != nil:
				// Results are matched to calls by order, and their ids must agree.
				if answers >= len(open) || open[answers].Name != p.Response.Name || open[answers].ID != p.Response.ID || p.Response.Response == nil {
					return "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
				}
				if strings.Contains(encode(p.Response.Response), `"$ref":`) {
					return fmt.Sprintf("contents[%d]: the reference in function_response.response cannot be resolved", i)
				}
				answers++
			}
		}

		if answers != len(open) {
			return "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
		}

		open = made
		if len(calls) > 0 && s.altered(calls, withoutIDs(c.Parts)) {
			return fmt.Sprintf("Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:%s` , position %d.", calls[0].Name, i)
		}
	}
	if len(open) > 0 {
		return "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn."
	}

	return ""
}

// withoutIDs returns content without ids. A signature may come back with or without its empty text.
func withoutIDs(parts []geminiPart) []geminiPart {
	var out []geminiPart
	for _, p := range parts {
		if p.FunctionCall != nil {
			p.FunctionCall = &geminiCall{Name: p.FunctionCall.Name, Args: json.RawMessage(canonical(p.FunctionCall.Args))}
		} else if p.Text == nil {
			p.Text = new(string)
		}
		out = append(out, p)
	}

	return out
}

func (gemini) errorResponse(kind model.ErrorKind, message string) (int, string) {
	status, text, word := http.StatusBadRequest, message, "INVALID_ARGUMENT"
	var details []any
	switch kind {
	case model.KindAuth:
		text = "API key not valid: KEY. Please pass a valid API key."
		details = []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}}
	case model.KindRateLimited:
		status, text, word = http.StatusTooManyRequests, "You exceeded your current quota, please check your plan and billing details.", "RESOURCE_EXHAUSTED"
	case model.KindContextOverflow:
		text = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
	case model.KindUnavailable:
		status, text, word = http.StatusServiceUnavailable, "The model is overloaded. Please try again later.", "UNAVAILABLE"
	}

	return status, encode(map[string]any{"error": map[string]any{"code": status, "message": text, "status": word, "details": details}})
}

func (d gemini) streamError(kind model.ErrorKind) string {
	_, text := d.errorResponse(kind, "no")
	return "data: " + text + "\r\n\r\n"
}

// sign returns a signature in base64, which the public client requires.
func sign(opaque string) string { return base64.StdEncoding.EncodeToString([]byte(opaque)) }

// parts returns the parts of an answer. With Opaque the text ends with an empty signed part, and
// the first call is signed too.
func (gemini) parts(t Turn) []geminiPart {
	var out []geminiPart
	if t.Text != "" {
		out = append(out, geminiPart{Text: &t.Text})
	}

	if t.Opaque != "" && t.Text != "" {
		out = append(out, geminiPart{Text: new(string), Signature: sign(t.Opaque + "text")})
	}

	for i, c := range t.Calls {
		p := geminiPart{FunctionCall: &geminiCall{c.ID, c.Name, c.Args}}
		if t.Opaque != "" && i == 0 {
			p.Signature = sign(t.Opaque)
		}
		out = append(out, p)
	}

	return out
}

func (d gemini) echo(t Turn) any { return withoutIDs(d.parts(t)) }

func (d gemini) frames(turn Turn) []string {
	var out []string
	add := func(parts []any, finish string) {
		candidate := map[string]any{"content": map[string]any{"role": "model", "parts": parts}, "index": 0}
		v := map[string]any{"candidates": []any{candidate}, "modelVersion": "scripted", "responseId": "r1"}
		if finish != "" {
			candidate["finishReason"] = finish
		}

		if u := turn.Usage; u != (model.Usage{}) {
			thought := max(u.Output/2, 0) // counted separately
			v["usageMetadata"] = map[string]any{"promptTokenCount": u.Input, "cachedContentTokenCount": u.Cached, "candidatesTokenCount": u.Output - thought,
				"thoughtsTokenCount": thought, "totalTokenCount": u.Input + u.Output}
		}

		out = append(out, "data: "+encode(v)+"\r\n\r\n")
	}

	if turn.Opaque != "" {
		add([]any{map[string]any{"text": "**Let me see**", "thought": true}}, "")
	}

	for _, p := range d.parts(turn) {
		fields := map[string]any{}
		if p.Signature != "" {
			fields["thoughtSignature"] = p.Signature
		}

		switch {
		case p.FunctionCall != nil && turn.Hang:
			return out
		case p.FunctionCall != nil:
			call := map[string]any{"name": p.FunctionCall.Name, "args": "@args@"}
			if p.FunctionCall.ID != "" {
				call["id"] = p.FunctionCall.ID
			}
			fields["functionCall"] = call
			add([]any{fields}, "")
			// Inserted as text: arguments that are broken on purpose cannot be encoded.
			out[len(out)-1] = strings.Replace(out[len(out)-1], `"@args@"`, string(p.FunctionCall.Args), 1)
		case *p.Text == "":
			fields["text"] = ""
			add([]any{fields}, "")
		default:
			for _, piece := range deltas(*p.Text) {
				add([]any{map[string]any{"text": piece}}, "")
			}
		}
	}

	if turn.Hang {
		return out
	}

	finish := map[string]string{"": "STOP", model.StopDone: "STOP", model.StopCalls: "STOP", model.StopLength: "MAX_TOKENS", model.StopFilter: "SAFETY", model.StopRefusal: "PROHIBITED_CONTENT"}[turn.Finish]
	if finish == "" {
		finish = strings.ToUpper(turn.Finish)
	}

	// The finish reason comes in a separate chunk with an empty text.
	add([]any{map[string]any{"text": ""}}, finish)
	return out
}
