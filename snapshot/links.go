package snapshot

import "strings"

// linkProblem says why a symbolic link at path (measured from the root) could lead out of the root, or "" when it cannot.
//
// A target may climb with ".." only at its start, and no higher than the root. The start of a target is walked from the
// link's own directory, which is a real one, so those steps are counted exactly. After a name that no longer holds: the
// name may itself be a link to a directory nearer the root, and a further ".." would then climb out although the text of
// the path looks harmless. With this rule every link resolves inside the root whatever other links there are, which is
// what lets each be judged alone, at save and at restore alike.
func linkProblem(path, target string) string {
	if target == "" || strings.ContainsRune(target, 0) {
		return "link without a usable target"
	}
	if strings.HasPrefix(target, "/") {
		return "link to an absolute path"
	}
	depth := strings.Count(path, "/")
	named := false
	for component := range strings.SplitSeq(target, "/") {
		switch component {
		case "", ".":
		case "..":
			if named {
				return "link that goes up again after a name, and so could leave the root through another link"
			}
			if depth--; depth < 0 {
				return "link that leaves the root"
			}
		default:
			named = true
		}
	}
	return ""
}
