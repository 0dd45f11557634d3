// Package markdown reads the pages of the handbook: the Markdown files of docs/ and deploy/, and
// README.md. It knows headings, links and fenced blocks, which is what test/docs/check holds
// against the code, and test/docs/run executes.
//
// A fenced block says by its info string what it is:
//
//	```sh            commands; test/docs/run runs them, in their order on the page
//	```sh not-run    commands that no test runs; the comment <!-- Not run by our tests: why. --> stands right above
//	```sh not-run X  the same, and test/docs/run has something that stands in for it, by the name of X
//	```console       commands, each after "$ ", with what they print; an example, not run
//
// Everything else (yaml, json, text, and none) has no commands in it.
//
// # Guarantees
//
//   - Lines are counted from 1, as an editor does.
//   - Anchors are those that GitHub gives to headings, second ones of the same text included, and
//     explicit id and name attributes.
//
// # Non-guarantees
//
//   - This is no Markdown parser: headings are those with #, links those in one line, and of HTML
//     only attributes id and name are seen.
//   - Expansions in commands are not carried out: "$x" is the word $x.
package markdown
