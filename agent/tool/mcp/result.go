package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/text"
)

// Bounds of a result: whoever reads it pays for it.
const (
	maxText       = 200_000 // characters, of all texts together
	maxStructured = 1 << 20 // bytes of JSON
	maxPictures   = 8
	maxPicture    = 4 << 20 // bytes of one
	maxLinks      = 100
)

// result is what a server answered to a call, as models and playbooks get it.
type result struct {
	Text       string          `json:"text"`
	Structured json.RawMessage `json:"structured,omitempty"`
	Links      []link          `json:"links,omitempty"`
}

// link is something that a server says is elsewhere. Nothing fetches it.
type link struct {
	URI  string `json:"uri"`
	Name string `json:"name,omitempty"`
	Type string `json:"media_type,omitempty"`
}

// envelope is the answer to a call. Whatever the server sent is text, data and pictures in it, and nothing else.
func envelope(server string, d Definition, res *mcp.CallToolResult, redact func(string) string) tool.Envelope {
	if res.NeedsInput() {
		return tool.Failure(tool.KindRejected, "the MCP server %s wants something of its caller before it answers, which rouse gives no server", server)
	}

	c := collector{redact: redact}
	for _, one := range res.Content {
		c.add(one)
	}
	c.structure(d, res.StructuredContent)

	out := result{Text: redact(c.text.String()), Structured: c.structured, Links: c.links}
	if utf8.RuneCountInString(out.Text) > maxText {
		out.Text = text.Truncate(out.Text, maxText)
		c.warn("its text was cut at %d characters", maxText)
	}

	e := tool.Success(out, c.warnings...)
	if res.IsError {
		said := out.Text
		if strings.TrimSpace(said) == "" {
			said = "without a word"
		}
		e = tool.Failure(tool.KindExecutionError, "%s", text.Truncate(said, 4000))
		e.Warnings = c.warnings
	}
	e.Images = c.images
	return e
}

// collector takes the parts of a result.
type collector struct {
	redact     func(string) string
	text       strings.Builder
	structured json.RawMessage
	links      []link
	images     []model.Image
	warnings   []string
}

func (c *collector) warn(format string, args ...any) {
	if len(c.warnings) < 20 {
		c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
	}
}

func (c *collector) say(s string) {
	if c.text.Len() > maxText*utf8.UTFMax {
		return // it is cut anyway
	}
	if c.text.Len() > 0 {
		c.text.WriteByte('\n')
	}
	c.text.WriteString(text.Clean(s))
}

func (c *collector) add(one mcp.Content) {
	switch one := one.(type) {
	case *mcp.TextContent:
		c.say(one.Text)
	case *mcp.ImageContent:
		c.picture(one.Data)
	case *mcp.AudioContent:
		c.warn("a sound of %s was left out", text.Size(int64(len(one.Data))))
	case *mcp.ResourceLink:
		c.link(one.URI, one.Name, one.MIMEType)
	case *mcp.EmbeddedResource:
		c.resource(one.Resource)
	default:
		c.warn("a part of a kind that is not known was left out")
	}
}

// picture shows a picture to the model, whatever the server says that it is.
func (c *collector) picture(data []byte) {
	kind := model.ImageType(data)
	switch {
	case kind == "":
		c.warn("a picture of a kind that no model takes was left out")
	case len(data) > maxPicture:
		c.warn("a picture of %s was left out; %s are the most", text.Size(int64(len(data))), text.Size(maxPicture))
	case len(c.images) == maxPictures:
		c.warn("more than %d pictures; the others were left out", maxPictures)
	default:
		c.images = append(c.images, model.Image{Type: kind, Data: data})
	}
}

func (c *collector) link(uri, name, kind string) {
	if len(c.links) == maxLinks {
		c.warn("more than %d links; the others were left out", maxLinks)
		return
	}
	plain := func(s string) string { return c.redact(text.OneLine(text.Truncate(s, 2000))) }
	c.links = append(c.links, link{plain(uri), plain(name), plain(kind)})
}

// resource is something that the server sent along.
func (c *collector) resource(r *mcp.ResourceContents) {
	switch {
	case r == nil:
		c.warn("a part without content was left out")
	case len(r.Blob) == 0:
		c.say(r.Text)
	case model.ImageType(r.Blob) != "":
		c.picture(r.Blob)
	default:
		c.warn("%s of %s were left out, which are no text", text.Size(int64(len(r.Blob))), text.OneLine(text.Truncate(r.URI, 200)))
	}
}

// structure takes the part of a result that is data, where it is what the server said that its results are.
func (c *collector) structure(d Definition, v any) {
	if v == nil {
		return
	}
	raw, err := json.Marshal(v)
	switch {
	case err != nil:
		c.warn("the structured part of its result is no JSON, and was left out")
		return
	case len(raw) > maxStructured:
		c.warn("the structured part of its result has %s, and was left out; %s are the most", text.Size(int64(len(raw))), text.Size(maxStructured))
		return
	}

	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		c.warn("the structured part of its result is no JSON, and was left out")
		return
	}
	if wrong := d.misfit(plain); wrong != "" {
		c.warn("the structured part of its result does not fit what the server says of its results, and was left out: %s", wrong)
		return
	}

	// A secret may stand in it as JSON writes it.
	redacted := c.redact(string(raw))
	if !json.Valid([]byte(redacted)) {
		c.warn("the structured part of its result held a secret, and was left out")
		return
	}
	c.structured = json.RawMessage(redacted)
}

// decodeResult reads the result of a call as the library does.
func decodeResult(raw []byte) (*mcp.CallToolResult, error) {
	var res mcp.CallToolResult
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, err
	}
	return &res, nil
}
