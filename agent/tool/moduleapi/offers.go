package moduleapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/form"
	"rouse/internal/text"
	"rouse/skills"
)

// Offer is a tool that an executable skill provides to models and playbooks.
type Offer struct {
	Name        string          `json:"name"` // full name: SKILL__NAME
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input"`            // JSON Schema of the arguments, an object
	Output      json.RawMessage `json:"output,omitempty"` // JSON Schema of the result; nil means any
	Export      string          `json:"export"`           // export of module.ts that implements the tool
	Starts      bool            `json:"starts,omitempty"` // a call starts a separate run and returns at once
}

const (
	// executeExport is the export that runs a skill, and the name of its tool.
	executeExport  = "execute"
	offerMark      = "__"     // between the names of a skill and its tool
	maxOfferText   = 1000     // characters; descriptions are part of each model request
	maxOfferSchema = 16 << 10 // bytes of JSON
)

// startsText is appended to the description of a skill that runs in the background.
const startsText = "It goes on by itself: the answer is the number of its run, and not what becomes of it."

// OfferPattern is the regular expression for the names of offered tools.
const OfferPattern = `^[a-z][a-z0-9-]*__[a-zA-Z0-9_-]+$`

// offerName matches the tool names that model providers accept.
var offerName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Offers returns the tools of a skill: one that runs the skill, and those that its manifest
// declares. unfit has the reasons why other declarations cannot be tools.
func Offers(s *skills.Skill) (offers []Offer, unfit []string) {
	add := func(name, description string, input, output json.RawMessage, export string) {
		o, err := newOffer(s.Name, name, description, input, export)
		switch {
		case err != nil:
			unfit = append(unfit, err.Error())
		case slices.ContainsFunc(offers, func(other Offer) bool { return other.Name == o.Name }):
			unfit = append(unfit, fmt.Sprintf("there are two tools of the name %s", o.Name))
		default:
			if o.Output = output; export == executeExport && s.Manifest.ExecutionMode != skills.ModeDeclarative {
				o.Starts, o.Output, o.Description = true, nil, o.Description+" "+startsText
			}
			offers = append(offers, o)
		}
	}

	m := s.Manifest
	if m == nil {
		return nil, nil
	}
	add(executeExport, m.Description, m.InputSchema, m.OutputSchema, executeExport)
	for _, t := range m.Tools {
		add(t.Name, t.Description, t.InputSchema, t.OutputSchema, t.HandlerExport)
	}
	return offers, unfit
}

// newOffer checks a tool of a skill and returns it as an Offer.
func newOffer(skill, name, description string, input json.RawMessage, export string) (Offer, error) {
	o := Offer{Name: skill + offerMark + name, Description: text.Truncate(text.Collapse(text.OneLine(description)), maxOfferText), Export: export}
	switch {
	case !offerName.MatchString(o.Name):
		return o, fmt.Errorf("models cannot call a tool of the name %q: 1 to 64 letters, digits, _ and -", o.Name)
	case o.Description == "":
		return o, fmt.Errorf("the tool %s has no description, by which a model would know it", o.Name)
	case export == "":
		return o, fmt.Errorf("the tool %s has no handlerExport", o.Name)
	case len(input) > maxOfferSchema:
		return o, fmt.Errorf("the inputSchema of the tool %s has %s, and %s are the most", o.Name, text.Size(int64(len(input))), text.Size(maxOfferSchema))
	}

	var err error
	if o.Input, err = objectSchema(input); err != nil {
		return o, fmt.Errorf("the inputSchema of the tool %s %w", o.Name, err)
	}
	return o, nil
}

// objectSchema returns a schema of arguments with the type object.
func objectSchema(schema json.RawMessage) (json.RawMessage, error) {
	if len(schema) == 0 {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(schema, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("is no object")
	}
	if err := form.SelfContained(schema); err != nil {
		return nil, fmt.Errorf("cannot be used: %w", err)
	}
	if _, err := resolve(schema); err != nil {
		return nil, fmt.Errorf("cannot be used: %w", err)
	}

	switch string(fields["type"]) {
	case `"object"`:
		return schema, nil
	case "":
		fields["type"] = json.RawMessage(`"object"`)
		return json.Marshal(fields)
	}
	return nil, fmt.Errorf("is of the type %s, and must be of the type object", fields["type"])
}

// Spec returns the spec of the tool. The tool itself has no other effect, because each call of its
// module is authorized, recorded and undone separately. An interrupted call is repeated.
func (o Offer) Spec() tool.Spec {
	s := offered
	s.Name, s.Description, s.Schema = o.Name, o.Description, o.Input
	return s
}

var offered = tool.Spec{
	Effect: domain.EffectDatabase, Class: tool.ClassExec, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
	Requires: tool.RequiresOffer, Nests: true, Timeout: -1, Access: tool.NoNeeds,
}

// ExecuteName returns the name of the tool that runs a skill.
func ExecuteName(skill string) string { return skill + offerMark + executeExport }

// IsOffer reports whether a tool belongs to a skill, according to its name.
func IsOffer(s *skills.Skill, name string) bool { return strings.HasPrefix(name, s.Name+offerMark) }

// OfferSpecs returns the specs of the tools of a skill, and an open spec for the tools that its
// module registers.
func OfferSpecs(s *skills.Skill) tool.Specs {
	offers, _ := Offers(s)
	if len(offers) == 0 {
		return nil
	}

	open := offered
	open.Name, open.Description, open.Open = s.Name+offerMark, "Tools that the module of the skill "+s.Name+" registers.", true
	out := tool.Specs{open}
	for _, o := range offers {
		out = append(out, o.Spec())
	}
	return out
}
