package wire

import (
	"regexp"
	"strconv"
	"strings"
)

// limitField is how servers name the limit of an answer.
var limitField = regexp.MustCompile(`(?i)max_?(?:completion_?|output_?|new_?)?tokens`)

// greatestLimit is the greatest limit in the message of a server.
var greatestLimit = regexp.MustCompile("(?i)(?:at most|less than or equal to|up to|<=|maximum value (?:is|of))\\s*[`'\"]?(\\d+)")

// Limit returns the greatest length of an answer to ask for, in tokens; 0 if none is to be sent.
func (c *Client) Limit(wanted int) int {
	switch most := c.most.Load(); {
	case most < 0:
		return 0
	case most > 0:
		return min(wanted, int(most))
	}
	return wanted
}

// AdaptLimit learns from an error response that the server does not take the limit that was sent, and reports whether to
// ask again with a lower one or without one. The client stops an answer that is longer than its limit in any case.
func (c *Client) AdaptLimit(sent int, refusal ServerError) bool {
	if sent <= 0 || !limitField.MatchString(refusal.Message) {
		return false
	}

	// A number of the context depends on the length of the request.
	if m := greatestLimit.FindStringSubmatch(refusal.Message); m != nil && !strings.Contains(refusal.Message, "context") {
		if most, err := strconv.ParseInt(m[1], 10, 64); err == nil && most > 0 && most < int64(sent) {
			c.most.Store(most)
			return true
		}
	}
	return c.most.Swap(-1) >= 0
}
