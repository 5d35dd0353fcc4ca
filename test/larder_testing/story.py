"""The text that one process writes: what a cluster must write too, to the byte."""
import subprocess

PROMPT = "Once upon a time"
# The same tokens wherever and whenever they are computed
GREEDY = ["-p", PROMPT, "--temp", "0", "--ignore-eos"]


def alone(larder, model, tokens, *options):
    """What `larder run` prints, bytes."""
    done = subprocess.run([larder, "run", "-m", model, "-n",
                           str(tokens), *GREEDY, *options], stdin=subprocess.DEVNULL,
                          capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"the one-process run failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
