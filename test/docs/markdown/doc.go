// Package markdown reads the pages of the handbook: the Markdown files of docs/ and deploy/, and
// README.md. It finds headings, links and fenced blocks. test/docs/check compares these with the
// code, and test/docs/run executes the blocks.
//
// The info string of a fenced block says what the block is:
//
//	```sh            commands; test/docs/run runs them, in their order on the page
//	```sh not-run    commands that no test runs; the comment <!-- Not run by our tests: why. --> stands right above
//	```sh not-run X  the same, and test/docs/run has a substitute for it under the name X
//	```console       commands, each after "$ ", with what they print; an example, not run
//
// Blocks of other kinds (yaml, json, text, and none) have no commands in them.
//
// # Guarantees
//
//   - Lines are counted from 1, as in an editor.
//   - Anchors are those that GitHub gives to headings, including repeated ones, and explicit id and
//     name attributes.
//
// # Non-guarantees
//
//   - This is not a full Markdown parser: headings begin with #, links are on one line, and of HTML
//     only the attributes id and name count.
//   - Expansions in commands are not carried out: "$x" is the word $x.
package markdown
