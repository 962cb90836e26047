package textcall

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// code parses the calls in a fence of Python code.
func (r *reader) code() bool {
	for r.space(); !strings.HasPrefix(r.rest(), "```"); r.space() {
		printed := r.take("print(")
		if !r.pythonCall() || printed && !r.take(")") {
			return false
		}
	}
	return r.take("```")
}

// list parses a list of Python calls.
func (r *reader) list() bool {
	if !r.take("[") {
		return false
	}
	for r.space(); ; r.space() {
		if !r.pythonCall() {
			return false
		}
		r.space()
		if r.take("]") {
			return true
		}
		if !r.take(",") {
			return false
		}
	}
}

// pythonCall parses a function call.
func (r *reader) pythonCall() bool {
	begin := r.at
	found := r.match(name)
	return found != nil && strings.HasPrefix(r.rest(), "(") && r.arguments(begin, found[1])
}

// arguments parses the named arguments of a call in parentheses. Values must be literals. It does
// not evaluate code.
func (r *reader) arguments(begin int, tool string) bool {
	args := map[string]any{}
	r.take("(")
	for r.space(); !r.take(")"); r.space() {
		key := r.match(word)
		if key == nil || !r.space() || !r.take("=") {
			return false
		}
		value, ok := r.literal()
		if !ok {
			return false
		}
		args[key[0]] = value
		if r.space(); !r.take(",") && !strings.HasPrefix(r.rest(), ")") {
			return false
		}
	}
	return r.addValue(begin, tool, args)
}

// words maps the literals of Python and JSON that are words to JSON.
var words = map[string]string{"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}

var (
	word   = regexp.MustCompile(`^[A-Za-z_]\w*`)
	number = regexp.MustCompile(`^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`)
)

// marks are the quotes of strings. Gemma uses tokens as quotes.
var marks = []string{`"""`, `'''`, `"`, `'`, "<escape>", `<|"|>`}

// maxDepth is the maximum nesting of a literal.
const maxDepth = 100

// literal parses a value of Python, JSON or Gemma. Gemma does not quote keys.
func (r *reader) literal() (any, bool) {
	if r.depth++; r.depth > maxDepth {
		return nil, false
	}
	defer func() { r.depth-- }()

	r.space()
	for _, mark := range marks {
		if r.take(mark) {
			return r.string(mark)
		}
	}

	if r.take("[") {
		out := []any{}
		for r.space(); !r.take("]"); r.space() {
			value, ok := r.literal()
			if r.space(); !ok || !r.take(",") && !strings.HasPrefix(r.rest(), "]") {
				return nil, false
			}
			out = append(out, value)
		}
		return out, true
	}
	if r.take("{") {
		return r.object()
	}

	if found := r.match(number); found != nil {
		return json.Number(found[0]), true
	}
	if found := r.match(word); found != nil {
		value, ok := words[found[0]]
		return json.RawMessage(value), ok
	}
	return nil, false
}

// object parses the rest of a dictionary.
func (r *reader) object() (any, bool) {
	out := map[string]any{}
	for r.space(); !r.take("}"); r.space() {
		var key string
		if found := r.match(word); found != nil {
			key = found[0]
		} else {
			value, _ := r.literal()
			text, ok := value.(string)
			if !ok {
				return nil, false
			}
			key = text
		}
		if r.space(); !r.take(":") {
			return nil, false
		}
		value, ok := r.literal()
		if r.space(); !ok || !r.take(",") && !strings.HasPrefix(r.rest(), "}") {
			return nil, false
		}
		out[key] = value
	}
	return out, true
}

// string parses the rest of a string. Gemma's strings have no escapes.
func (r *reader) string(mark string) (any, bool) {
	if strings.HasPrefix(mark, "<") {
		return r.until(mark)
	}

	var out strings.Builder
	for !r.take(mark) {
		if r.rest() == "" || len(mark) == 1 && r.rest()[0] == '\n' {
			return nil, false
		}
		char, _, rest, err := strconv.UnquoteChar(r.rest(), 0)
		if err != nil { // UnquoteChar rejects \" and \' here
			quote := r.rest()[1:]
			if r.rest()[0] != '\\' || quote == "" || !strings.ContainsAny(quote[:1], `"'`) {
				return nil, false
			}
			char, rest = rune(quote[0]), quote[1:]
		}
		out.WriteRune(char)
		r.at = len(r.text) - len(rest)
	}
	return out.String(), true
}
