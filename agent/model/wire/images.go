package wire

import (
	"fmt"
	"slices"
	"strings"

	"rouse/agent/model"
)

// ImageLimits are the pictures that a kind of server takes.
type ImageLimits struct {
	Types    []string // like image/png
	MaxBytes int      // bytes of the greatest
	MaxTotal int      // bytes of all in one request
}

// FilterImages gives messages as the server is to see them: in the place of a picture that it does not
// take stands why. shown says that pictures are among them. The newest are the ones that are
// shown when there are too many.
func (s *Client) FilterImages(messages []model.Message) (seen []model.Message, shown bool) {
	if !slices.ContainsFunc(messages, func(m model.Message) bool { return len(m.Images) > 0 }) {
		return messages, false
	}

	seen = slices.Clone(messages)
	left := s.dialect.Images.MaxTotal
	for i, m := range slices.Backward(seen) {
		var takes []model.Image
		for _, image := range slices.Backward(m.Images) {
			if why := s.imageProblem(image, left); why != "" {
				seen[i].Text += fmt.Sprintf("\n[A picture (%s) is not shown: %s.]", image, why)
				continue
			}
			left -= len(image.Data)
			takes = append(takes, image)
		}

		slices.Reverse(takes)
		seen[i].Images = takes
		shown = shown || len(takes) > 0
	}

	return seen, shown
}

// imageProblem says why a picture is not shown, "" when it is.
func (s *Client) imageProblem(i model.Image, left int) string {
	takes := s.dialect.Images
	switch why := s.noImages.Load(); {
	case why != nil:
		return fmt.Sprintf("the model %s sees none (%s)", s.endpoint.Model, strings.TrimRight(*why, "."))
	case !slices.Contains(takes.Types, i.Type):
		return fmt.Sprintf("the provider takes %s", strings.Join(takes.Types, ", "))
	case len(i.Data) > takes.MaxBytes:
		return fmt.Sprintf("the provider takes up to %s; make a smaller copy", mebibytes(takes.MaxBytes))
	case len(i.Data) > left:
		return fmt.Sprintf("a request takes %s of pictures, and newer ones have filled it", mebibytes(takes.MaxTotal))
	}

	return ""
}

func mebibytes(n int) string { return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20)) }

// AdaptImages learns from what a server says of a request with pictures that its model sees none,
// and says whether to ask again without them.
func (s *Client) AdaptImages(shown bool, said ServerError) bool {
	words := strings.ToLower(said.Message)
	says := func(any ...string) bool {
		return slices.ContainsFunc(any, func(w string) bool { return strings.Contains(words, w) })
	}
	if !shown || !says("image", "vision", "multimodal", "modalit") || says("media type", "media_type", "format", "too large", "exceeds", "could not process") ||
		!says("support", "not enabled", "not a multimodal", "missing data required", "unknown variant", "not accept", "cannot process", "only text") {
		return false
	}

	s.noImages.Store(&said.Message)
	return true
}

// MoveToolImages moves the pictures that tools gave into a message of its own behind the results, for
// servers in whose results there is no place for them.
func MoveToolImages(history []model.Message, shown bool) []model.Message {
	if !shown {
		return history
	}

	out := make([]model.Message, 0, len(history)+1)
	var pictures []model.Image
	show := func() {
		if len(pictures) > 0 {
			out = append(out, model.Message{Role: model.RoleUser, Text: "The pictures of the results above, in their order:", Images: pictures})
		}
		pictures = nil
	}

	for _, m := range history {
		if m.Role != model.RoleTool {
			show()
			out = append(out, m)
			continue
		}

		pictures = append(pictures, m.Images...)
		m.Images = nil
		out = append(out, m)
	}

	show()
	return out
}
