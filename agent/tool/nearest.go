package tool

import "rouse/internal/text"

// hint ends a message about a wrong name with the one that was probably meant; "" when none is near.
func hint(wrong string, known []string) string {
	ask := text.DidYouMean(wrong, known)
	if ask == "" {
		return ""
	}

	return "; " + ask
}
