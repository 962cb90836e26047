package tool

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"rouse/internal/text"
)

// Paging describes how to cut a long result, and how a call requests the rest.
type Paging struct {
	Field string // result field to cut: a text of numbered lines ("     7|…"), or a list
	Start string // argument for the start: a line number, or the number of list items to skip
	Next  string // result field for the next start, or ""
}

const (
	noteRoom   = 200 // approximate size of the note about the cut, in bytes
	leastShown = 80  // minimum useful size of a cut field, in bytes
)

// Shorten cuts the result of a call to about most bytes, at the end of a line or list item. It adds
// a warning that describes how to get the rest. args are the arguments of the call. It returns
// false if the result cannot be cut.
func Shorten(envelope string, s Spec, args json.RawMessage, most int) (string, bool) {
	var e Envelope
	var result map[string]json.RawMessage
	if json.Unmarshal([]byte(envelope), &e) != nil || !e.OK || json.Unmarshal(e.Result, &result) != nil {
		return "", false
	}

	field := longest(result, s.Paging.Field)
	room := most - (len(envelope) - len(result[field])) - noteRoom
	if field == "" || room < leastShown {
		return "", false
	}

	whole := result[field]
	cut, kept, rest, of := cutText(whole, room)
	if cut == nil && whole[0] == '[' {
		cut, kept, of = cutList(whole, room)
		rest = kept + given(args, s.Paging.Start)
	}
	if cut == nil {
		return "", false
	}

	result[field] = cut
	if _, says := result["truncated"]; says {
		result["truncated"] = json.RawMessage("true")
	}

	how := "make a call that asks for less to see more of it"
	if s.Paging.Start != "" && field == s.Paging.Field && rest > 0 {
		how = fmt.Sprintf("call %s again with %s %d to go on", s.Name, s.Paging.Start, rest)
		if s.Paging.Next != "" {
			result[s.Paging.Next] = json.RawMessage(strconv.Itoa(rest))
		}
	}

	raw, err := encode(result)
	if err != nil {
		return "", false
	}
	e.Result = raw
	e.Warnings = append(e.Warnings, fmt.Sprintf("cut to fit your context: the first %d %s of %s are shown; %s", kept, of, field, how))

	out, err := e.Text()
	return string(out), err == nil
}

// longest returns the name of the largest field of a result that can be cut. It returns preferred
// if that field exists.
func longest(result map[string]json.RawMessage, preferred string) string {
	if _, ok := result[preferred]; ok {
		return preferred
	}

	name := ""
	for field, raw := range result {
		if (raw[0] == '"' || raw[0] == '[') && (name == "" || len(raw) > len(result[name]) || len(raw) == len(result[name]) && field < name) {
			name = field
		}
	}
	return name
}

// cutText returns the first lines of a JSON string, or the beginning of the first line if that line
// is too long. next is the line number of the first omitted line, or 0. cut is nil if raw is not a
// string or already fits.
func cutText(raw json.RawMessage, room int) (cut json.RawMessage, kept, next int, of string) {
	var whole string
	if len(raw) <= room || json.Unmarshal(raw, &whole) != nil {
		return nil, 0, 0, ""
	}

	end := 0
	for used := 2; end < len(whole); kept++ { // used includes the quotes
		line := whole[end:]
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		if used += encodedLen(line); used > room {
			break
		}
		end += len(line)
	}

	if kept > 0 {
		return encoded(whole[:end]), kept, lineNumber(whole[end:]), "lines"
	}

	head := text.HeadBytes(whole, room)
	for encodedLen(head) > room && head != "" {
		head = text.HeadBytes(head, len(head)*3/4)
	}
	return encoded(head), utf8.RuneCountInString(head), 0, "characters"
}

// encoded returns a text as a JSON string.
func encoded(text string) json.RawMessage {
	raw, err := encode(text)
	if err != nil {
		return json.RawMessage(`""`)
	}
	return raw
}

// encodedLen returns the length of a text within a JSON string.
func encodedLen(text string) int { return len(encoded(text)) - len(`""`) }

// lineNumber returns the line number in front of the first line of a text, or 0 if the line is not
// numbered.
func lineNumber(lines string) int {
	number, _, numbered := strings.Cut(lines, "|")
	n, err := strconv.Atoi(strings.TrimSpace(number))
	if !numbered || err != nil {
		return 0
	}
	return n
}

// cutList returns the first items of a JSON list. cut is nil if the first item does not fit, or if
// all items fit.
func cutList(raw json.RawMessage, room int) (cut json.RawMessage, kept int, of string) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return nil, 0, ""
	}

	used := len("[]")
	for kept < len(items) && used+len(items[kept])+1 <= room {
		used += len(items[kept]) + 1
		kept++
	}
	if kept == 0 || kept == len(items) {
		return nil, 0, ""
	}

	cut, err := encode(items[:kept])
	if err != nil {
		return nil, 0, ""
	}
	return cut, kept, "items"
}

// given returns the number given for an argument, or 0.
func given(args json.RawMessage, name string) int {
	var all map[string]json.RawMessage
	var n int
	if name == "" || json.Unmarshal(args, &all) != nil || json.Unmarshal(all[name], &n) != nil {
		return 0
	}
	return n
}
