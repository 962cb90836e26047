package wire

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rouse/agent/model"
)

// ImageLimits are the limits of a kind of server for images.
type ImageLimits struct {
	Types    []string // media types, for example image/png
	MaxBytes int      // limit of one image
	MaxTotal int      // limit of all images of a request
}

// FilterImages removes images that the server does not accept, and adds the reason to their
// messages. If a request cannot hold all images, the newest are sent.
func (c *Client) FilterImages(messages []model.Message) (filtered []model.Message, hasImages bool) {
	if !slices.ContainsFunc(messages, func(m model.Message) bool { return len(m.Images) > 0 }) {
		return messages, false
	}

	filtered = slices.Clone(messages)
	left := c.dialect.Images.MaxTotal
	for i, m := range slices.Backward(filtered) {
		var accepted []model.Image
		for _, image := range slices.Backward(m.Images) {
			if why := c.imageProblem(image, left); why != "" {
				filtered[i].Text += fmt.Sprintf("\n[A picture (%s) is not shown: %s.]", image, why)
				continue
			}
			left -= len(image.Data)
			accepted = append(accepted, image)
		}

		slices.Reverse(accepted)
		filtered[i].Images = accepted
		hasImages = hasImages || len(accepted) > 0
	}

	return filtered, hasImages
}

// imageProblem returns the reason why an image cannot be sent, or "" if it can.
func (c *Client) imageProblem(i model.Image, left int) string {
	takes := c.dialect.Images
	switch why := c.noImages.Load(); {
	case why != nil:
		return fmt.Sprintf("the model %s sees none (%s)", c.endpoint.Model, strings.TrimRight(*why, "."))
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

// AdaptImages learns that the model does not support images, and reports whether to retry without
// images.
func (c *Client) AdaptImages(sent bool, refusal ServerError) bool {
	words := strings.ToLower(refusal.Message)
	says := func(any ...string) bool {
		return slices.ContainsFunc(any, func(w string) bool { return strings.Contains(words, w) })
	}
	// Providers have no error code for this, so the text decides.
	if !sent || !says("image", "vision", "multimodal", "modalit") || says("media type", "media_type", "format", "too large", "exceeds", "could not process") ||
		!says("support", "not enabled", "not a multimodal", "missing data required", "unknown variant", "not accept", "cannot process", "only text") {
		return false
	}

	c.noImages.Store(&refusal.Message)
	return true
}

// MoveToolImages moves images of tool results into a user message after the results.
func MoveToolImages(history []model.Message, hasImages bool) []model.Message {
	if !hasImages {
		return history
	}

	out := make([]model.Message, 0, len(history)+1)
	var images []model.Image
	flush := func() {
		if len(images) > 0 {
			out = append(out, model.Message{Role: model.RoleUser, Text: "The pictures of the results above, in their order:", Images: images})
		}
		images = nil
	}

	for _, m := range history {
		if m.Role != model.RoleTool {
			// Consecutive results must not be separated by another message.
			flush()
			out = append(out, m)
			continue
		}

		images = append(images, m.Images...)
		m.Images = nil
		out = append(out, m)
	}

	flush()
	return out
}

// limitField matches the names that servers use for the output limit.
var limitField = regexp.MustCompile(`(?i)max_?(?:completion_?|output_?|new_?)?tokens`)

// greatestLimit matches the maximum limit in an error message.
var greatestLimit = regexp.MustCompile("(?i)(?:at most|less than or equal to|up to|<=|maximum value (?:is|of))\\s*[`'\"]?(\\d+)")

// Limit returns the output limit to send, in tokens. Zero means no limit.
func (c *Client) Limit(wanted int) int {
	switch most := c.most.Load(); {
	case most < 0:
		return 0
	case most > 0:
		return min(wanted, int(most))
	}
	return wanted
}

// AdaptLimit learns that the server rejects the limit that was sent. It reports whether to retry
// with a lower limit or none. The client cuts off a longer answer in any case.
func (c *Client) AdaptLimit(sent int, refusal ServerError) bool {
	if sent <= 0 || !limitField.MatchString(refusal.Message) {
		return false
	}

	// A limit of the context depends on the length of the request, so it is not stored.
	if m := greatestLimit.FindStringSubmatch(refusal.Message); m != nil && !strings.Contains(refusal.Message, "context") {
		if most, err := strconv.ParseInt(m[1], 10, 64); err == nil && most > 0 && most < int64(sent) {
			c.most.Store(most)
			return true
		}
	}
	return c.most.Swap(-1) >= 0
}
