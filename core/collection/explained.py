"""What a collection's file says of itself: a comment on everything, views to select.

A file that is opened with any DuckDB, without this program, explains its tables and
columns and has three views with plain names. They are texts: nothing here opens a file,
and this program reads none of the views.
"""

# Of every table: what it holds, and what its columns are.
TABLES = {
    "meta": (
        "What the collection is and how it was made; a row is a fact",
        {
            "key": "Which fact: name, settings, damping, fingerprint and more",
            "value": "JSON",
        },
    ),
    "classes": (
        "The classes of training images; a row is a class",
        {
            "label": "Number of the class, from 0",
            "names": "JSON list: the value of every label column",
        },
    ),
    "examples": (
        "The training images; a row is an image. See the view training_images",
        {
            "example_id": "Number of the training image",
            "label": "Number of its class",
            "image": "Bytes of the image file",
            "sha256": "Checksum of the image",
            "metadata": "JSON object: its row in the data set",
        },
    ),
    "arrays": (
        "Arrays and files, whose bytes lie in chunks; a row is one of them",
        {
            "name": "What it is",
            "dtype": "Its elements, as numpy names them, or bytes for a file",
            "shape": "JSON list of lengths, in row-major order",
            "sha256": "Checksum of all its bytes",
        },
    ),
    "chunks": (
        "The bytes of arrays and files; a row holds up to 64 kB",
        {
            "name": "Of the array or file",
            "start": "Place of the first of these bytes",
            "data": "The bytes; numbers are little-endian",
        },
    ),
    "samples": (
        "The generated images of the gallery; a row is an image. See the view queries",
        {
            "sample_id": "Number of the generated image",
            "label": "Number of the class it was made for; null for none",
            "seed": "Of its noise",
            "sampler": "ddpm or ddim",
            "num_steps": "Sampling steps",
            "guidance_scale": "Of classifier-free guidance; 1 for none",
            "metadata": "JSON object: what else is known",
            "image": "Bytes of a PNG file",
            "sha256": "Checksum of the image",
        },
    ),
    "answers": (
        "Scores of all training images; a row is a generated image under a lens. "
        "See the view scores",
        {
            "sample_id": "Number of the generated image",
            "lens": "JSON object: method, measurement, what else is not the default",
            "scores": "float32, little-endian, in order of example_id",
            "standard_errors": "As scores; NaN where the method has none",
            "value": "The measured value of the generated image; NaN for a similarity",
            "source": "Where the scores come from",
            "sha256": "Checksum of scores, then standard_errors",
        },
    ),
    "evaluations": (
        "How good the scores are; a row is a figure",
        {"name": "What was evaluated", "key": "Which figure", "value": "JSON"},
    ),
    "shards": (
        "Files beside this one, such as the full index; a row is a file",
        {
            "file": "Path from the folder of this file",
            "first_position": "Its first training image, in order of example_id",
            "num_examples": "How many it holds; 0 for a file about all of them",
            "layout": "JSON object: its kind and how to read it",
            "dtype": "Its elements, as numpy names them",
            "num_bytes": "Its size",
            "sha256": "Checksum of the file",
        },
    ),
}

PIECE = 1024  # scores; to slice a blob costs its length, so it is sliced in two steps


def _piece(blob: str) -> str:
    """Return the SQL of the bytes of one piece of a blob."""
    return f"{blob}[{4 * PIECE} * piece + 1:{4 * PIECE} * (piece + 1)]"


def _number(blob: str) -> str:
    """Return the SQL of the number at a place: its four bytes, the last one first."""
    first = f"4 * (place % {PIECE})"
    turned = " || ".join(f"{blob}[{first} + {k}:{first} + {k}]" for k in (4, 3, 2, 1))
    return f"({turned})::bit::float::double"


IMAGES, SAMPLES, ANSWERS = (TABLES[n][1] for n in ("examples", "samples", "answers"))

# Of every view: what it holds, its columns, and its query.
VIEWS = {
    "training_images": (
        "The training images with the names of their classes; a row is an image",
        {
            "example_id": IMAGES["example_id"],
            "label": IMAGES["label"],
            "class": TABLES["classes"][1]["names"],
            "image": IMAGES["image"],
            "metadata": IMAGES["metadata"],
        },
        """
        select example_id, label, names as class, image, metadata
        from examples left join classes using (label)
        """,
    ),
    "queries": (
        "The generated images that are asked about; a row is an image",
        {
            "query_id": SAMPLES["sample_id"],
            "label": SAMPLES["label"],
            "class": TABLES["classes"][1]["names"],
            "seed": SAMPLES["seed"],
            "sampler": SAMPLES["sampler"],
            "num_steps": SAMPLES["num_steps"],
            "guidance_scale": SAMPLES["guidance_scale"],
            "image": SAMPLES["image"],
            "metadata": SAMPLES["metadata"],
        },
        """
        select sample_id as query_id, label, names as class, seed, sampler, num_steps,
            guidance_scale, image, metadata
        from samples left join classes using (label)
        """,
    ),
    "scores": (
        "What each training image did for each generated image; a row is a pair "
        "under a lens. Large and positive: it helped, as without it the measured "
        "value is predicted to rise",
        {
            "query_id": SAMPLES["sample_id"],
            "example_id": IMAGES["example_id"],
            "method": "ekfac is influence; clip is a similarity",
            "measurement": "loss, elbo or trajectory; null where there is none",
            "score": "In units of the value, or a similarity",
            "standard_error": "Of the score; null where the method has none",
            "value": ANSWERS["value"],
            "lens": ANSWERS["lens"],
        },
        f"""
        with numbered as (
            select example_id, row_number() over (order by example_id) - 1 as place
            from examples),
        pieces as (
            select sample_id, lens, value, piece,
                {_piece("scores")} as some_scores,
                {_piece("standard_errors")} as some_errors
            from answers, (select distinct place // {PIECE} as piece from numbered) n)
        select sample_id as query_id, example_id, lens ->> 'method' as method,
            lens ->> 'measurement' as measurement, {_number("some_scores")} as score,
            nullif({_number("some_errors")}, 'nan'::double) as standard_error,
            value, lens
        from pieces join numbered on piece = place // {PIECE}
        """,
    ),
}


def explanation() -> str:
    """Return the statements that explain a file whose tables are there."""
    lines = [f"create view {name} as {view[2]};" for name, view in VIEWS.items()]
    for kind, explained in (("table", TABLES), ("view", VIEWS)):
        for name, (comment, columns, *_) in explained.items():
            lines.append(f"comment on {kind} {name} is '{comment}';")
            lines += [
                f"comment on column {name}.{column} is '{text}';"
                for column, text in columns.items()
            ]
    return "\n".join(lines)
