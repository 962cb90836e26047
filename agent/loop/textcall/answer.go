package textcall

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Call is a tool call.
type Call struct {
	Name   string
	Args   json.RawMessage // a JSON object
	Source string          // part of the answer that contains the call
}

// Answer is the text of a model, split into its parts.
type Answer struct {
	Thinking string // reasoning at the beginning, with its markers
	Text     string // the rest, even if it consists of calls
	Calls    []Call // calls, if the rest consists of calls
	Fault    string // reason the answer is not a result, as a clause about "it"; otherwise empty
	// Quotes reports that the call at the end may be an example: it follows prose, in a form that
	// is also usual in prose.
	Quotes bool
}

// Tools returns the JSON Schema of a tool's arguments. It returns false if the tool does not exist.
type Tools func(name string) (schema json.RawMessage, ok bool)

// Read splits an answer into its parts.
func Read(answer string, tools Tools) Answer {
	a := Split(answer)
	if a.Fault != "" {
		return a
	}

	text := endMarkers.ReplaceAllString(plainMarkers(a.Text), "")
	switch calls, fault, ok := parse(text, tools); {
	case fault != "":
		a.Fault = "is a call as text, and " + fault
	case ok:
		a.Calls = calls
	default:
		a.Fault, a.Quotes = endsInCall(text, tools)
	}
	return a
}

// thoughts are the markers around the reasoning of models.
var thoughts = []struct{ begin, end string }{
	{"<think>", "</think>"}, {"<thinking>", "</thinking>"}, {"[THINK]", "[/THINK]"}, {"<|channel|>analysis<|message|>", "<|end|>"},
}

// endOfThought matches an end marker without a begin marker. Chat templates that begin the
// reasoning themselves leave only the end in the answer.
var endOfThought = regexp.MustCompile(`</think>[ \t]*(\n|$)`)

// finalChannel marks the beginning of the answer of gpt-oss.
const finalChannel = "<|channel|>final<|message|>"

// Split separates the reasoning at the beginning of an answer from its text.
func Split(answer string) Answer {
	rest := strings.TrimSpace(answer)
	for again := true; again; {
		again = false
		rest = strings.TrimSpace(strings.TrimPrefix(rest, "<|start|>assistant"))
		for _, t := range thoughts {
			if !strings.HasPrefix(rest, t.begin) {
				continue
			}

			_, after, closed := strings.Cut(rest, t.end)
			if !closed {
				return Answer{Thinking: strings.TrimSpace(answer), Fault: "is reasoning without an end (" + t.begin + ")"}
			}
			rest, again = strings.TrimSpace(after), true
		}
	}

	if at := endOfThought.FindStringIndex(rest); at != nil && !strings.Contains(rest[:at[0]], "<think>") {
		rest = strings.TrimSpace(rest[at[1]:])
	}
	before := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(answer), rest))
	return Answer{Thinking: before, Text: strings.TrimSpace(strings.TrimPrefix(rest, finalChannel))}
}

// endMarkers are tokens at the end of an answer that some servers leave in its text.
var endMarkers = regexp.MustCompile(`(?:\s*(?:<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<\|end_of_sentence\|>|<end_of_turn>|<\|call\|>|</s>))+\s*$`)

// wideMarker matches a token of DeepSeek, which uses special characters for bars and blanks.
var wideMarker = regexp.MustCompile(`<[|｜][a-z▁_]+[|｜]>`)

// plainMarkers converts the tokens of DeepSeek to ASCII.
func plainMarkers(text string) string {
	if !strings.ContainsAny(text, "｜▁") {
		return text
	}
	return wideMarker.ReplaceAllStringFunc(text, strings.NewReplacer("｜", "|", "▁", "_").Replace)
}

// marker matches the beginning of a call in a form that does not occur in prose, on its own line.
var marker = regexp.MustCompile(`^[ \t]*(?:(?:<tool_call>|<\|tool_call\|?>|<function_call>|<tool_calls>|\[TOOL_CALLS\]|<\|python_tag\|>)\s*(?:[{\[<]|[\w.-]+\s*(?:[{(\[<]|$))|` +
	`<function=|<invoke name=|<minimax:tool_call>|<[|｜]DSML[|｜]|<\|tool_calls?(?:_section)?_begin\|>|<start_function_call>|<\|channel\|>commentary to=)`)

// endsInCall returns the reason a text that does not consist of calls ends in a call, or "".
func endsInCall(text string, tools Tools) (fault string, quotes bool) {
	whole := strings.TrimSpace(text)
	if whole == "" {
		return "", false
	}
	endsInCode := strings.ContainsAny(whole[len(whole)-1:], "}])>`")
	closed := strings.LastIndexByte(text, '}') // prose follows a call that begins before this position
	if ends := callEnd.FindAllStringIndex(text, -1); len(ends) > 0 {
		closed = max(closed, ends[len(ends)-1][0])
	}

	fenced, openFence := false, 0
	read := 0 // calls followed by prose end at this position
	for at := 0; at < len(text); {
		line, _, _ := strings.Cut(text[at:], "\n")
		tail := text[at:]
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			if fenced = !fenced; fenced {
				openFence = at
			} else if strings.TrimSpace(tail) == "```" { // the fence ends the answer
				if _, fault, ok := parse(text[openFence:], tools); ok && fault == "" {
					return "ends in a call as text", true
				}
			}
		case fenced:
		case marker.MatchString(tail) && (endsInCode || at > closed):
			return "holds a call as text that cannot be read, or that follows other text", false
		case strings.HasPrefix(trimmed, "{") && at >= read:
			r := &reader{text: tail, tools: tools}
			if r.all() && r.fault == "" {
				return "ends in a call as text", true
			}
			read = at + r.at
		}
		at += len(line) + 1
	}
	return "", false
}

// callEnd matches the end of a call in a form with markers.
var callEnd = regexp.MustCompile(`</tool_calls?>|<\|/tool_call\|>|<tool_call\|>|</function_call>|</function>|</invoke>|</minimax:tool_call>|<\|tool_calls?(?:_section)?_end\|>|<end_function_call>|DSML[|｜]function_calls>`)
